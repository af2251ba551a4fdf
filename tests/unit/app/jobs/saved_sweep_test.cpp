#include "app/jobs/sweep/saved_sweep.h"

#include <gtest/gtest.h>

#include "app/jobs/sweep/sweep_job.h"
#include "storage/sweep_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

SweepSetting setting(const std::string& head, const std::string& tree, TreeShape shape, double tau) {
    SweepSetting one;
    one.drafter = "eagle3";
    one.head = head;
    one.tree = tree;
    one.shape = shape;
    one.round_ms = 8;
    one.plain_ms = 5;
    for (int c = 0; c < 8; ++c) one.units.push_back({10, 10 * tau + c});
    return one;
}

SweepReport report() {
    SweepReport out;
    out.recording = "demo.recording";
    out.source = "tiny, 8 prompts";
    out.conversations = 8;
    out.categories = {"a", "a", "a", "a", "b", "b", "b", "b"};
    out.max_new = 24;
    MachineProfile profile;
    profile.machine = "test machine";
    profile.backend = "cpu";
    profile.precision = "int8";
    profile.threads = 3;
    set_profile(profile, out);
    out.run.model = "my.gguf";
    out.temperature = 0.5;
    out.run.artefacts = {"slimspec=own.safetensors"};
    out.settings = {setting("full", "depth=3,topk=4,nodes=12", {3, 4, 12}, 2.4),
                    setting("microspec", "chain=2", {1, 1, 3}, 2.1)};
    rank_settings(out.settings);
    out.skipped = {"eagle3 x coral: no cost"};
    OracleLine bound{{"eagle3"}, "full", "", 3, 1, {{0, 2, 0, 2}}, {{0, 50, 0, 70}}, 8, 6};
    out.oracles = {bound};
    bound.drafters = {"ngram", "eagle3"};
    bound.rounds.push_back({0, 1, 0, 0});
    bound.positions = bound.rounds;
    out.oracles.push_back(bound);
    return out;
}

/// What a file holds is shown as what was swept.
TEST(SavedSweep, ShowsTheSameFromAFile) {
    const testing::ScratchFolder folder;
    const std::string file = folder.file("sweep.dscope");
    SweepReport made = report();
    made.advice = advise(made);
    made.live_verdict = "as predicted";
    made.confirmed = {{setting_name(made.settings[1]), 1, 1, 1.9, 150, {1.4, Interval{1.2, 1.6}}, {}},
                      {setting_name(made.settings[1]), 8, {}, 1.9, 600, {1.1, {}}, {}},
                      {"ngram @ chain=3", 1, {}, 1.2, 90, {0.9, {}}, {}}};
    find_setting(made, made.confirmed[0]);
    ASSERT_TRUE(made.confirmed[0].agrees.has_value());
    ASSERT_TRUE(is_ok(save_sweep(file, made)));
    prepare_for_window(made);
    const auto loaded = load_sweeps(file);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->size(), 1u);
    const SweepReport& view = *loaded->front();
    EXPECT_EQ(view.file, file);
    EXPECT_EQ(view.source, made.source);
    EXPECT_EQ(view.recording, made.recording);
    EXPECT_TRUE(view.recording.ends_with("/demo.recording")) << "absolute: " << view.recording;
    EXPECT_EQ(view.costs, "test machine (measured, 3 threads)");
    RunConfig run;
    run.model = "my.gguf";
    run.prompts_file = view.recording;
    run.precision = "int8";
    run.threads = 3;
    run.temperature = 0.5;
    run.max_new = 24;
    run.artefacts = {"slimspec=own.safetensors"};
    EXPECT_EQ(view.run, run) << "the sweep's own model, prompts, threads and precision";
    EXPECT_EQ(made.run, run);
    EXPECT_EQ(view.categories, made.categories);
    EXPECT_EQ(view.estimates, made.skipped);
    EXPECT_EQ(view.max_new, 24);
    EXPECT_EQ(view.advice.summary, made.advice.summary);
    EXPECT_EQ(view.advice.changes, made.advice.changes);
    EXPECT_EQ(view.advice.run_line, made.advice.run_line);
    ASSERT_EQ(view.settings.size(), 2u);
    ASSERT_TRUE(view.usual.has_value());
    EXPECT_EQ(view.settings[*view.usual].head, "full");
    for (std::size_t r = 0; r < 2; ++r) {
        const SweepSetting &one = view.settings[r], &other = made.settings[r];
        EXPECT_EQ(one.head, other.head);
        EXPECT_EQ(one.shape, other.shape);
        EXPECT_EQ(one.units.size(), 8u);
        EXPECT_DOUBLE_EQ(one.figures.speedup.value, other.figures.speedup.value);
        EXPECT_DOUBLE_EQ(one.figures.tau.interval.value().low, other.figures.tau.interval.value().low);
        EXPECT_EQ(one.figures.on_front, other.figures.on_front);
    }
    ASSERT_EQ(view.oracles.size(), 2u);
    EXPECT_EQ(view.oracles[0].head, "full");
    EXPECT_DOUBLE_EQ(view.oracles[0].tau(), 2);
    EXPECT_DOUBLE_EQ(view.oracles[0].speedup(), 1.5);
    EXPECT_EQ(view.oracles[1].positions, made.oracles[1].positions);
    EXPECT_EQ(view.advice.choice.chosen, made.advice.choice.chosen);
    ASSERT_TRUE(view.advice.choice.chosen.has_value());
    EXPECT_EQ(view.advice.headline, made.advice.headline);
    EXPECT_EQ(view.advice.reasons, made.advice.reasons);
    EXPECT_EQ(view.live_verdict, "as predicted");
    ASSERT_EQ(view.confirmed.size(), 3u);
    EXPECT_EQ(view.confirmed[0].setting, 1u);
    EXPECT_EQ(view.confirmed[0].agrees, made.confirmed[0].agrees);
    EXPECT_DOUBLE_EQ(view.confirmed[0].speedup.interval.value().high, 1.6);
    EXPECT_EQ(view.confirmed[1].setting, std::nullopt) << "of another batch than any swept setting";
    EXPECT_EQ(view.confirmed[2].setting, std::nullopt);
    EXPECT_FALSE(view.confirmed[2].speedup.interval.has_value());
}

TEST(SavedSweep, FilesWithoutADescriptionStillShowTheirFigures) {
    const testing::ScratchFolder folder;
    const std::string file = folder.file("sweep.dscope");
    const SweepReport swept = report();
    ASSERT_TRUE(is_ok(save_sweep(file, swept)));
    const auto sweeps = read_all_swept(file);
    ASSERT_TRUE(sweeps.ok());
    for (const char* about :
         {"", "[]", "no JSON", R"({"recording": 3, "advice": {"changes": [1], "chosen": 2}})"}) {
        ASSERT_TRUE(is_ok(write_swept(file, swept.source, sweeps->front().rows, about)));
        const auto loaded = load_sweeps(file);
        ASSERT_TRUE(loaded.ok()) << about;
        EXPECT_EQ(loaded->front()->settings.size(), 2u);
        EXPECT_EQ(loaded->front()->recording, "");
        EXPECT_EQ(loaded->front()->advice.summary, "");
        EXPECT_FALSE(loaded->front()->advice.choice.chosen.has_value());
    }
}

}  // namespace
}  // namespace draftscope
