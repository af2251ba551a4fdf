#include "app/jobs/profile/profile_job.h"

#include <algorithm>
#include <set>

#include "tests/unit/app/jobs/tiny_slimspec.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

class ProfileJob : public ::testing::Test {
  protected:
    ProfileConfig config() {
        ProfileConfig made;
        made.run = files_.config();
        made.out = files_.file("machine.json");
        made.source = "a test";
        made.drafters = {made.run.drafter, "ngram"};
        made.heads = {"full", "microspec", "slimspec"};
        made.contexts = {16, 48};
        made.batches = {1, 2};
        made.rounds = 3;
        return made;
    }
    TinyFiles files_;
};

TEST_F(ProfileJob, MeasuresEveryPart) {
    const MachineProfile profile = require(run_profile(config(), {}));
    EXPECT_TRUE(profile.complete);
    EXPECT_EQ(profile.precision, "f32");
    EXPECT_EQ(profile.threads, 1);
    for (const CostPart part : {CostPart::verify, CostPart::overhead}) {
        ASSERT_NE(profile.find(part), nullptr);
        EXPECT_GT(profile.find(part)->curve.points.size(), 9u);
    }
    const PartCost* verify = profile.find(CostPart::verify);
    EXPECT_TRUE(verify->curve.error);
    std::set<double> rows, batches;
    for (const CostPoint& point : verify->curve.points) {
        rows.insert(point.at.rows);
        batches.insert(point.at.batch);
        EXPECT_EQ(point.samples, 1);
    }
    EXPECT_EQ(profile.controls.size(), profile.sessions.size());
    // Three steps in three visits.
    for (const char* visit : {"1", "2", "3"})
        EXPECT_EQ(std::ranges::count(profile.sessions,
                                     fmt::format("eagle2 full chain=2 context=16 batch=1 visit={}", visit)),
                  1);
    for (const double wanted : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64})
        EXPECT_TRUE(rows.contains(wanted)) << wanted;
    EXPECT_EQ(batches, (std::set<double>{1, 2}));
    ASSERT_NE(profile.find(CostPart::catch_up, "eagle2"), nullptr);
    ASSERT_NE(profile.find(CostPart::level, "eagle2"), nullptr);
    ASSERT_NE(profile.find(CostPart::catch_up, "ngram"), nullptr);
    const PartCost* full = profile.find(CostPart::head, "eagle2", "full");
    ASSERT_NE(full, nullptr);
    EXPECT_EQ(full->size_parameter, "");
    const PartCost* window = profile.find(CostPart::head, "eagle2", "microspec");
    ASSERT_NE(window, nullptr);
    EXPECT_EQ(window->size_parameter, "wmax");
    // A short text does not fill the smallest window, so the size is that of the rows it holds.
    for (const CostPoint& point : window->curve.points) {
        EXPECT_GT(point.at.size, 1);
        EXPECT_LT(point.at.size, 512);
    }
    ASSERT_EQ(profile.find(CostPart::head, "eagle2", "slimspec"), nullptr);
    // Prompt lookup may also find too few drafts.
    EXPECT_EQ(std::count_if(profile.skipped.begin(), profile.skipped.end(),
                            [](const std::string& text) { return text.starts_with("slimspec: "); }),
              1);

    const StepCost cost =
        require(predict_method(profile, "eagle2 x full @ depth=1,topk=4,nodes=12", 1.5, 32, 1));
    EXPECT_GT(cost.verify_ms, 0);
    EXPECT_GT(cost.drafter_ms, 0);
    EXPECT_GT(cost.head_ms, 0);
    EXPECT_FALSE(predict_method(profile, "eagle2 x full", 1, 32, 1).ok());
    EXPECT_FALSE(predict_method(profile, "eagle2 x microspec:wmax=0 @ chain=2", 1, 32, 1).ok());
    EXPECT_TRUE(is_ok(predict_method(profile, "ngram @ chain=2", 1, 32, 1)));
    EXPECT_TRUE(is_ok(predict_method(profile, "none", 1, 32, 1)));
}

TEST_F(ProfileJob, WeightsThatFixAHeadsSizeGiveItsOnlySize) {
    const int rank = 10;
    const std::string weights = testing::save_tiny_slimspec(files_, rank);
    ProfileConfig given = config();
    given.drafters.resize(1);
    given.heads = {"slimspec"};
    given.batches = {1};
    given.run.artefacts = {"slimspec=" + weights};
    const MachineProfile profile = require(run_profile(given, {}));
    const PartCost* head = profile.find(CostPart::head, "eagle2", "slimspec");
    ASSERT_NE(head, nullptr) << (profile.skipped.empty() ? "" : profile.skipped.front());
    EXPECT_EQ(head->size_parameter, "rank");
    for (const CostPoint& point : head->curve.points) EXPECT_EQ(point.at.size, rank);
    const auto at = [&](const char* method) { return require(predict_method(profile, method, 1, 32, 1)); };
    EXPECT_GT(at("eagle2 x slimspec:rank=10 @ chain=2").head_ms, 0);
    EXPECT_TRUE(at("eagle2 x slimspec:rank=20 @ chain=2").extrapolated);
}

TEST_F(ProfileJob, ARerunMeasuresOnlyWhatIsMissing) {
    ProfileConfig some = config();
    some.drafters.resize(1);
    some.heads = {"full"};
    JobHooks hooks;
    int sessions = 0;
    hooks.on_progress = [&](double, const std::string& what) {
        sessions += what.find("context=") != what.npos;
    };
    hooks.cancelled = [&] { return sessions > 4; };
    const MachineProfile first = require(run_profile(some, hooks));
    EXPECT_FALSE(first.complete);
    EXPECT_EQ(first.sessions.size(), 4u);
    hooks.cancelled = {};
    const MachineProfile second = require(run_profile(some, hooks));
    EXPECT_TRUE(second.complete);
    const std::size_t known = second.sessions.size();
    EXPECT_TRUE(std::equal(first.sessions.begin(), first.sessions.end(), second.sessions.begin()));
    const MachineProfile third = require(run_profile(some, {}));
    EXPECT_EQ(third.sessions, second.sessions);
    EXPECT_EQ(third.costs.size(), second.costs.size());
    EXPECT_EQ(third.find(CostPart::verify)->curve.points.size(),
              second.find(CostPart::verify)->curve.points.size());
    some.batches = {1, 2, 3};
    EXPECT_GT(require(run_profile(some, {})).sessions.size(), known);
}

TEST_F(ProfileJob, RefusesToContinueAProfileWithoutAControl) {
    ProfileConfig some = config();
    some.drafters.resize(1);
    some.heads = {"full"};
    some.contexts = {16};
    some.batches = {1};
    MachineProfile former = require(run_profile(some, {}));
    former.controls.clear();
    ASSERT_TRUE(is_ok(write_profile(former)));
    const auto again = run_profile(some, {});
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().kind, ErrorKind::bad_input);
    EXPECT_NE(again.error().message.find("without a control"), std::string::npos) << again.error().message;
}

TEST_F(ProfileJob, SkipsWhatTheContextDoesNotHold) {
    ProfileConfig long_text = config();
    long_text.drafters.resize(1);
    long_text.heads = {"full"};
    long_text.batches = {1};
    long_text.contexts = {16, 4000};
    const MachineProfile profile = require(run_profile(long_text, {}));
    EXPECT_TRUE(profile.complete);
    EXPECT_EQ(std::ranges::count_if(profile.skipped,
                                    [](const std::string& text) { return text.starts_with("none"); }),
              1);
    ASSERT_FALSE(profile.skipped.empty());
    EXPECT_NE(profile.skipped[0].find("context=4000"), std::string::npos) << profile.skipped[0];
}

TEST_F(ProfileJob, RefusesInvalidSettingsAndOtherFiles) {
    const auto message = [&](auto change) {
        ProfileConfig wrong = config();
        change(wrong);
        const auto done = run_profile(wrong, {});
        if (done.ok() || done.error().kind != ErrorKind::bad_input) return std::string("no bad input");
        return done.error().message;
    };
    const auto expect = [&](auto change, const char* part) {
        const std::string text = message(change);
        EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect([](ProfileConfig& c) { c.out.clear(); }, "--out");
    expect([](ProfileConfig& c) { c.rounds = 0; }, "--rounds 0");
    expect([](ProfileConfig& c) { c.contexts = {0}; }, "--contexts 0");
    expect([](ProfileConfig& c) { c.batches = {0}; }, "--batches 0");
    expect([](ProfileConfig& c) { c.heads = {"nope"}; }, "--heads nope");
    expect([](ProfileConfig& c) { c.heads = {"oracle"}; }, "--heads oracle");
    expect([&](ProfileConfig& c) { c.run.artefacts = {"specvocab=" + c.run.model}; },
           "none of the heads is specvocab");
    expect([](ProfileConfig& c) { c.drafters = {"none"}; }, "--drafters none");
    expect([](ProfileConfig& c) { c.drafters = {"eagle9"}; }, "eagle9");
    expect([&](ProfileConfig& c) { c.out = files_.file("missing/machine.json"); }, "missing/machine.json");
}

}  // namespace
}  // namespace draftscope
