#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/decode_fixture.h"
#include "tests/support/ranking_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/simt_device.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"
#include "tests/unit/engine/decode/device_rig.h"

/// Rounds that a device runs from the catch-up to the acceptance are the ones that the host makes with it,
/// node by node, and it is waited for once in each.
namespace draftscope::testing {
namespace {

/// "simt2": the kernels themselves, their threads on the host in an order of its own.
TwinExec exec_of(const std::string& kind) {
    if (kind.starts_with("simt")) return TwinExec(make_simt_device(static_cast<unsigned>(kind[4] - '0')));
    return TwinExec(kind);
}

class DeviceRounds : public ::testing::TestWithParam<std::string> {
  protected:
    DeviceRounds() {
        auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on_.exec.get());
        eagle_.emplace(target->config(), 77);
        eagle3_.emplace(target->config(), 78, vocab);
        normed_eagle3_.emplace(target->config(), 83, 0, true);
        medusa_.emplace(target->config(), false, 79);
        hydra_.emplace(target->config(), true, 80);
        // Fewer levels than some trees ask for.
        whole_medusa_.emplace(target->config(), false, 81, 3, true);
        whole_hydra_.emplace(target->config(), true, 82, 3, true);
        fixture_.emplace(std::move(target),
                         std::map<std::string, std::string>{{"eagle2", eagle_->folder()},
                                                            {"eagle3", eagle3_->folder()},
                                                            {"medusa", medusa_->folder()},
                                                            {"hydra", hydra_->folder()}},
                         ranking_.path());
        fixture_->run_on(*on_.exec);
        artefacts_.emplace(*fixture_);
    }
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
    }
    std::vector<StepRecord> steps(DecodeCase setting, bool there) {
        RecordList list;
        setting.rounds_there = there;
        (void)fixture_->decode(setting, prompts_, &list);
        return RecordList::of<StepRecord>(list.take());
    }

    void expect_the_hosts(const DecodeCase& setting);
    std::string fixed_tree() const {
        const std::string file = folder_.file("tree.json");
        std::ofstream(file)
            << "[[0],[1],[2],[3],[0,0],[0,1],[0,2],[1,0],[3,2],[0,0,0],[0,0,1],[0,2,3],[1,0,0]]";
        return "choices:" + file;
    }
    std::string normed_eagle3() const { return "eagle3:" + normed_eagle3_->folder(); }
    std::string whole_medusa() const { return "medusa:" + whole_medusa_->folder(); }
    std::string whole_hydra() const { return "hydra:" + whole_hydra_->folder(); }

    TwinExec on_ = exec_of(GetParam());
    ScratchFolder folder_;
    int nodes_ = 0, accepted_ = 0;
    std::optional<TinyEagle2> eagle_;
    std::optional<TinyEagle3> eagle3_, normed_eagle3_;
    std::optional<TinyDecodingHeads> medusa_, hydra_, whole_medusa_, whole_hydra_;
    RankingFile ranking_ = RankingFile::shuffled(vocab);
    std::optional<DecodeFixture> fixture_;
    std::optional<TinyArtefacts> artefacts_;
    std::vector<std::vector<TokenId>> prompts_ = prompts();
};

void expect_same_round(const RoundRecord& found, const RoundRecord& expected) {
    EXPECT_EQ(found.round.accepted, expected.round.accepted);
    EXPECT_EQ(found.round.committed, expected.round.committed);
    EXPECT_EQ(found.round.tree_depth, expected.round.tree_depth);
    ASSERT_EQ(found.nodes.size(), expected.nodes.size());
    for (std::size_t n = 0; n < found.nodes.size(); ++n) {
        const NodeRow &a = found.nodes[n], &b = expected.nodes[n];
        EXPECT_EQ(a.token_id, b.token_id);
        EXPECT_EQ(a.parent, b.parent);
        EXPECT_EQ(a.draft_logprob, b.draft_logprob);
        EXPECT_EQ(a.accepted, b.accepted);
        EXPECT_EQ(a.target_token_id, b.target_token_id);
        EXPECT_EQ(a.target_prob, b.target_prob);
        EXPECT_EQ(a.target_rank, b.target_rank);
        EXPECT_EQ(a.target_covered, b.target_covered);
    }
    ASSERT_EQ(found.tops.size(), expected.tops.size());
    for (std::size_t t = 0; t < found.tops.size(); ++t)
        EXPECT_EQ(found.tops[t].token_id, expected.tops[t].token_id);
    ASSERT_EQ(found.head_evals.size(), expected.head_evals.size());
    for (std::size_t h = 0; h < found.head_evals.size(); ++h) {
        EXPECT_EQ(found.head_evals[h].covered_mass, expected.head_evals[h].covered_mass);
        EXPECT_EQ(found.head_evals[h].active_rows, expected.head_evals[h].active_rows);
    }
}

/// Heads that are one product; the others need every form of a step only once.
constexpr const char* products[] = {"full", "fr-spec:v=6", "slimspec"};
constexpr const char* others[] = {"specvocab:k=5",
                                  "specvocab:k=4/6,share=per-row",
                                  "coral:active=3",
                                  "dynaspec:kmax=4,kmin=3",
                                  "dynaspec:kmax=4,kmin=3,share=per-row",
                                  "microspec:wmax=9",
                                  "microspec:wmax=9,gather=indexed",
                                  "microspec:wmax=8,gather=sync,eos=yes"};
/// Rows are spread over the vocabulary.
constexpr const char* spread[] = {"fr-spec:v=6+rdk",
                                  "full+rdk",
                                  "microspec:wmax=9+rdk",
                                  "specvocab:k=5+rdk",
                                  "specvocab:k=4/6,share=per-row+rdk",
                                  "coral:active=3+rdk",
                                  "dynaspec:kmax=4,kmin=3+rdk"};
constexpr const char* trees[] = {"chain=4", "depth=3,topk=4,nodes=12", "depth=4,topk=3,nodes=20,order=fr"};

std::vector<DecodeCase> settings() {
    std::vector<DecodeCase> all;
    const auto add = [&](const char* drafter, const char* head, double temperature, const char* tree) {
        DecodeCase& setting = all.emplace_back();
        setting.drafter = drafter;
        setting.head = head;
        setting.temperature = temperature;
        setting.tree = tree;
        setting.batch = tree[0] == 'c' ? 1 : 3;
        setting.max_new = 7;
        if (temperature > 0 && head[0] == 'f') setting.top_p = 0.8;
        if (temperature > 0 && head[0] == 's') setting.top_k = 4;
        if (temperature > 0 && drafter[5] == '3' && head[0] == 's') setting.verify = "typical";
        // Steps of the full head beside are the host's: both kinds take turns.
        setting.calibration_rounds = head[0] == 's' || head[0] == 'd' ? 3 : 0;
        // Then the host says the path, and the device moves along it.
        if (head[0] == 'f' && head[1] == 'r' && temperature == 0) setting.acceptance = "rate:0.7";
    };
    for (const char* drafter : {"eagle2", "eagle3"})
        for (const char* head : products) {
            for (const char* tree : trees) add(drafter, head, 0, tree);
            for (const char* tree : {trees[1], trees[2]}) add(drafter, head, 0.8, tree);
        }
    for (const char* head : others) {
        add("eagle2", head, 0, trees[0]);
        add("eagle2", head, 0.8, trees[1]);
        add("eagle3", head, 0, trees[2]);
    }
    for (const char* head : spread) {
        add("eagle2", head, 0, trees[1]);
        add("eagle3", head, 0.8, trees[2]);
    }
    // Steps are the host's until the window holds enough tokens, and again where a level's clusters may not.
    add("eagle2", "microspec:wmax=9,source=ext", 0, trees[1]);
    add("eagle2", "dynaspec:kmax=3,kmin=1,flat=1", 0, trees[1]);
    return all;
}

/// Of drafters whose levels have a head each.
std::vector<DecodeCase> path_settings(const std::string& drafter, bool own_heads) {
    std::vector<DecodeCase> all;
    const auto add = [&](const char* head, const char* tree, double temperature, const char* verify) {
        DecodeCase& setting = all.emplace_back();
        setting.drafter = drafter;
        setting.head = head;
        setting.tree = tree;
        setting.batch = tree[0] == 'c' ? 1 : 3;
        setting.max_new = 7;
        setting.temperature = temperature;
        setting.verify = verify;
        if (temperature > 0 && verify[0] == 'm') setting.top_p = 0.8;
        setting.calibration_rounds = head[0] == 's' ? 3 : 0;
    };
    for (const char* tree : trees) add("full", tree, 0, "match");
    add("full", trees[1], 0.8, "match");
    add("full", trees[2], 0.9, "typical");
    if (own_heads) return all;
    add("fr-spec:v=6", trees[2], 0, "match");
    all.back().acceptance = "rate:0.7";
    for (const char* head : others) add(head, trees[1], head[0] == 'd' ? 0.8 : 0.0, "match");
    return all;
}

void DeviceRounds::expect_the_hosts(const DecodeCase& setting) {
    SCOPED_TRACE(to_text(setting));
    const auto found = steps(setting, true), expected = steps(setting, false);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) {
        ASSERT_EQ(found[s].rounds.size(), expected[s].rounds.size());
        for (std::size_t r = 0; r < found[s].rounds.size(); ++r) {
            expect_same_round(found[s].rounds[r], expected[s].rounds[r]);
            nodes_ += found[s].rounds[r].round.drafted;
            accepted_ += found[s].rounds[r].round.accepted;
        }
    }
}

TEST_P(DeviceRounds, AreTheHosts) {
    for (const DecodeCase& setting : settings()) {
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
    }
    // Features go through norms, those of a prompt and of calibration rounds on their way from the host.
    for (const char* verify : {"match", "pq"}) {
        DecodeCase setting;
        setting.drafter = normed_eagle3();
        setting.verify = verify;
        setting.temperature = verify[0] == 'p' ? 0.9 : 0;
        setting.batch = 3;
        setting.max_new = 7;
        setting.head = "slimspec";
        setting.calibration_rounds = 3;
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(nodes_, 500);
    EXPECT_GT(accepted_, 20);
}

TEST_P(DeviceRounds, OfHeadsForEachLevelAreTheHosts) {
    for (const std::string& drafter :
         {std::string("medusa"), std::string("hydra"), whole_medusa(), whole_hydra()})
        for (const DecodeCase& setting : path_settings(drafter, drafter.size() > 6)) {
            expect_the_hosts(setting);
            if (HasFatalFailure()) return;
        }
    EXPECT_GT(nodes_, 500);
    EXPECT_GT(accepted_, 20);
}

/// Drafts that are drawn and judged there.
TEST_P(DeviceRounds, OfDrawnDraftsAreTheHosts) {
    const auto expect_drawn = [&](const std::string& drafter, const char* head, const char* tree, int kept) {
        DecodeCase setting;
        setting.drafter = drafter;
        setting.head = head;
        setting.tree = tree;
        setting.verify = "pq";
        setting.temperature = 0.9;
        setting.batch = tree[0] == 'c' ? 1 : 3;
        setting.max_new = 7;
        // Fewer than a node may have: the rest cannot be drawn.
        setting.top_k = kept;
        if (kept == 5) setting.top_p = 0.6;
        if (head[0] == 's') setting.calibration_rounds = 3;
        if (head[1] == 'r' && kept == 5) setting.acceptance = "rate:0.7";
        expect_the_hosts(setting);
    };
    // What stands in for a row without a draft is read again there, which the host saves.
    const auto reads_again = [](std::string_view head, int kept) {
        return kept > 0 && head.find("per-row") != head.npos;
    };
    for (const char* tree : trees)
        for (const int kept : {0, 5, 2}) {
            expect_drawn("eagle2", "full", tree, kept);
            if (HasFatalFailure()) return;
        }
    for (const char* head : {"fr-spec:v=6", "slimspec"})
        for (const int kept : {0, 5}) {
            expect_drawn("eagle3", head, trees[1], kept);
            expect_drawn("hydra", head, trees[2], kept);
            if (HasFatalFailure()) return;
        }
    expect_drawn(whole_hydra(), "full", trees[2], 2);
    // Rows have tokens of their own.
    for (const char* head : others)
        for (const int kept : {0, 2}) {
            if (reads_again(head, kept)) continue;
            expect_drawn(kept == 0 ? "eagle2" : "eagle3", head, trees[kept == 0 ? 1 : 2], kept);
            if (HasFatalFailure()) return;
        }
    for (const char* head : spread)
        for (const int kept : {0, 2}) {
            if (reads_again(head, kept)) continue;
            expect_drawn(kept == 0 ? "eagle2" : "hydra", head, trees[1], kept);
            if (HasFatalFailure()) return;
        }
    // One row serves all nodes of a level, each of which takes drafts out of its own copy.
    for (const int kept : {0, 5, 2}) {
        expect_drawn(whole_medusa(), "full", trees[kept == 0 ? 0 : 2], kept);
        expect_drawn("medusa", "fr-spec:v=6", trees[1], kept);
        if (HasFatalFailure()) return;
    }
    for (const char* head : {others[0], others[3], others[6]})
        for (const char* drafter : {"medusa", "hydra"}) {
            expect_drawn(drafter, head, trees[1], 5);
            if (HasFatalFailure()) return;
        }
    EXPECT_GT(nodes_, 500);
    EXPECT_GT(accepted_, 50);
}

/// Levels are of other widths than any tree by score has, and ranks are left out.
TEST_P(DeviceRounds, OfTreesFixedInAdvanceAreTheHosts) {
    const std::string tree = fixed_tree();
    const auto expect_fixed = [&](const std::string& drafter, const char* head, const char* verify,
                                  int kept) {
        DecodeCase setting;
        setting.drafter = drafter;
        setting.head = head;
        setting.tree = tree;
        setting.verify = verify;
        setting.temperature = verify[0] == 'm' ? 0 : 0.9;
        setting.batch = 3;
        setting.max_new = 7;
        // Fewer than the ranks of some nodes: those cannot be drawn.
        setting.top_k = kept;
        expect_the_hosts(setting);
    };
    for (const std::string& drafter : {std::string("eagle2"), std::string("eagle3"), std::string("medusa"),
                                       std::string("hydra"), whole_medusa(), whole_hydra()})
        for (const char* verify : {"match", "typical", "pq"}) {
            expect_fixed(drafter, "full", verify, 0);
            if (verify[0] == 'p') expect_fixed(drafter, "full", verify, 2);
            if (HasFatalFailure()) return;
        }
    for (const char* head : others) {
        expect_fixed("eagle2", head, "match", 0);
        expect_fixed("medusa", head, "pq", 0);
        expect_fixed("hydra", head, "typical", 0);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(nodes_, 500);
    EXPECT_GT(accepted_, 20);
}

/// The same by the kernels, which are slow so.
class KernelRounds : public DeviceRounds {};

TEST_P(KernelRounds, AreTheHosts) {
    prompts_ = {{5, 1, 2, 8}, {3, 9, 4, 0, 7}};
    for (const char* head :
         {"specvocab:k=5", "dynaspec:kmax=4,kmin=3", "microspec:wmax=9", "specvocab:k=5+rdk"}) {
        DecodeCase setting;
        setting.head = head;
        setting.tree = "depth=1,topk=3,nodes=5";
        setting.batch = 2;
        setting.max_new = 3;
        if (head[0] != 's') {
            setting.temperature = 0.9;
            setting.top_p = 0.8;
            setting.verify = head[0] == 'd' ? "typical" : "match";
        }
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
        setting.temperature = 0.9;
        setting.top_p = 1;
        setting.top_k = head[0] == 'd' ? 4 : 0;
        setting.verify = "pq";
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
    }
    for (const std::string& drafter : {whole_medusa(), whole_hydra(), std::string("eagle3")}) {
        DecodeCase setting;
        setting.drafter = drafter;
        if (drafter != whole_hydra()) {
            setting.verify = "pq";
            setting.temperature = 0.9;
            setting.top_k = 2;
        }
        setting.tree = "depth=1,topk=3,nodes=5";
        setting.batch = 2;
        setting.max_new = 3;
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
    }
    for (const char* verify : {"match", "pq"}) {
        DecodeCase setting;
        setting.tree = fixed_tree();
        setting.verify = verify;
        setting.temperature = verify[0] == 'p' ? 0.9 : 0;
        setting.top_k = 3;
        setting.max_new = 3;
        expect_the_hosts(setting);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(nodes_, 24);
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelRounds, ::testing::Values("simt2"), kind_of);

/// Rules that look at distributions find what they need of the rows there. Beside an engine without a device,
/// whose logits differ by rounding, of fp16 here: numbers that fall between the two are counted.
TEST_P(DeviceRounds, RulesAreTheHosts) {
    const std::map<std::string, std::string> drafters = {{"eagle2", eagle_->folder()}};
    TwinExec on = exec_of(GetParam());
    on.exec->device()->set_dtype(kernels::Float16Kind::f16);
    DecodeFixture there(DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get()), drafters,
                        ranking_.path());
    there.run_on(*on.exec);
    DecodeFixture host(DecodeFixture::build(tiny(), kernels::Precision::f32), drafters, ranking_.path());
    int texts = 0, same = 0, accepted = 0;
    for (const char* drafter : {"eagle2", "ngram"})
        for (const char* verify : {"match", "typical", "typical:epsilon=0.3,delta=0.9", "pq"})
            for (const double top_p : {1.0, 0.8}) {
                DecodeCase setting;
                setting.drafter = drafter;
                setting.verify = verify;
                setting.temperature = 0.9;
                setting.top_p = top_p;
                setting.batch = 3;
                setting.max_new = 10;
                SCOPED_TRACE(to_text(setting));
                RecordList list;
                const auto found = there.decode(setting, prompts_, &list),
                           expected = host.decode(setting, prompts_);
                ASSERT_EQ(found.size(), expected.size());
                for (std::size_t i = 0; i < found.size(); ++i) {
                    ++texts;
                    same += found[i].tokens == expected[i].tokens;
                }
                for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
                    for (const RoundRecord& round : step.rounds) accepted += round.round.accepted;
            }
    EXPECT_GE(texts, 48);
    EXPECT_GE(same, texts * 9 / 10);
    EXPECT_GT(accepted, 20);
}

/// One wait for each step of one sequence, and of several.
TEST_P(DeviceRounds, WaitOnce) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts waits";
    std::vector<std::pair<const char*, bool>> cases = {{"fr-spec:v=6", true}, {"fr-spec:v=6", false}};
    for (const char* head : others) cases.emplace_back(head, true);
    for (const char* head : spread) cases.emplace_back(head, true);
    for (const std::string& drafter : {std::string("eagle2"), std::string("eagle3"), std::string("medusa"),
                                       std::string("hydra"), normed_eagle3(), whole_medusa(), whole_hydra()})
        for (const auto& [head, there] : cases)
            for (const int batch : {1, 3}) {
                if (drafter.size() > 6 && head[0] != 'f') continue;  // it drafts with its own
                DecodeCase setting;
                setting.drafter = drafter;
                setting.head = head;
                if (drafter[5] == '3' && head[0] != 'd') {
                    setting.temperature = 0.9;
                    setting.top_p = 0.7;
                    setting.top_k = 9;
                    setting.verify = head[0] == 's' ? "typical" : "match";
                }
                setting.batch = batch;
                if (batch == 3 && head[0] == 'c') setting.tree = fixed_tree();
                SCOPED_TRACE(to_text(setting));
                // Drafts are drawn there.
                if (there &&
                    (drafter == "hydra" || drafter == whole_medusa() || drafter == whole_hydra() ||
                     (drafter == "medusa" && head[0] == 'd') || (drafter == "eagle2" && batch == 3))) {
                    setting.temperature = 0.9;
                    setting.verify = "pq";
                }
                prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}, {4, 8, 1, 12, 6, 10}, {2, 3, 5, 7, 11, 1}};
                prompts_.resize(batch);
                // What the prompts cost is the same for texts of any length; the first run makes the head,
                // too.
                int made[2], waits[2];
                setting.max_new = 1;
                (void)steps(setting, there);
                for (int i = 0; i < 2; ++i) {
                    setting.max_new = i == 0 ? 4 : 24;
                    const int before = on_.twin->finishes();
                    made[i] = static_cast<int>(steps(setting, there).size());
                    waits[i] = on_.twin->finishes() - before;
                }
                ASSERT_GT(made[1], made[0] + 3);
                if (there)
                    EXPECT_EQ(waits[1] - waits[0], made[1] - made[0]);
                else
                    EXPECT_GE(waits[1] - waits[0], 3 * (made[1] - made[0]));
            }
}

/// Tokens that rows could propose come where a recorder will ask what was covered, with each step; the text
/// is the same.
TEST_P(DeviceRounds, SetsComeWhereSomebodyAsks) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts downloads";
    DecodeCase setting;
    setting.head = "specvocab:k=5";
    setting.tree = trees[1];
    setting.max_new = 12;
    prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
    (void)fixture_->decode(setting, prompts_);  // makes the head
    RecordList list;
    int downloads[2];
    std::vector<TokenId> texts[2];
    for (int i = 0; i < 2; ++i) {
        const int before = on_.twin->downloads();
        texts[i] = fixture_->decode(setting, prompts_, i == 0 ? nullptr : &list)[0].tokens;
        downloads[i] = on_.twin->downloads() - before;
    }
    EXPECT_EQ(texts[0], texts[1]);
    ASSERT_GT(fixture_->totals().steps, 1);
    EXPECT_EQ(downloads[1] - downloads[0], fixture_->totals().steps);
}

/// What a set gives to is found for whoever asks what was covered, and for nobody else.
TEST_P(DeviceRounds, SpreadSetsAreFoundWhereSomebodyAsks) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts ops";
    for (const char* head : {"specvocab:k=5+rdk", "dynaspec:kmax=4,kmin=3+rdk"}) {
        DecodeCase setting;
        setting.head = head;
        setting.tree = trees[1];
        setting.temperature = 0.9;
        setting.verify = "pq";
        setting.max_new = 7;
        prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
        const int before = on_.twin->reaches();
        (void)fixture_->decode(setting, prompts_);
        EXPECT_EQ(on_.twin->reaches(), before) << head;
        EXPECT_GT(steps(setting, true).size(), 1u);
        EXPECT_GT(on_.twin->reaches(), before) << head;
    }
}

/// The queue beside has a memory of its own, and a router in it only where levels are the host's.
TEST_P(DeviceRounds, ARouterLiesThereOnceWhereRoundsDo) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts queues";
    DecodeCase setting;
    setting.head = "dynaspec:kmax=4,kmin=3";
    setting.tree = trees[1];
    setting.temperature = 0.9;
    setting.verify = "pq";
    setting.max_new = 7;
    prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
    EXPECT_GT(steps(setting, true).size(), 1u);
    EXPECT_EQ(on_.twin->besides(), 0);
    EXPECT_GT(steps(setting, false).size(), 1u);
    EXPECT_EQ(on_.twin->besides(), 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceRounds, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
