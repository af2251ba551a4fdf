#include <gtest/gtest.h>

#include "tests/unit/engine/decode_rig.h"
#include "tests/unit/engine/device_rig.h"
#include "tests/unit/engine/ranking_file.h"
#include "tests/unit/engine/tiny_artefacts.h"
#include "tests/unit/engine/tiny_drafter.h"

/// Rounds that a device runs from the catch-up to the acceptance are the ones that the host makes with it,
/// node by node, and it is waited for once in each.
namespace draftscope::testing {
namespace {

class DeviceRounds : public ::testing::TestWithParam<std::string> {
  protected:
    DeviceRounds() {
        auto target = DecodeRig::build(tiny(), kernels::Precision::bf16, on_.exec.get());
        eagle_.emplace(target->config(), 77);
        eagle3_.emplace(target->config(), 78, vocab);
        rig_.emplace(
            std::move(target),
            std::map<std::string, std::string>{{"eagle2", eagle_->folder()}, {"eagle3", eagle3_->folder()}},
            ranking_.path());
        rig_->run_on(*on_.exec);
        artefacts_.emplace(*rig_);
    }
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
    }
    std::vector<StepRecord> steps(RigSetting setting, bool there) {
        RecordList list;
        setting.rounds_there = there;
        (void)rig_->decode(setting, prompts_, &list);
        return RecordList::of<StepRecord>(list.take());
    }

    TwinExec on_{GetParam()};
    std::optional<TinyEagle2> eagle_;
    std::optional<TinyEagle3> eagle3_;
    RankingFile ranking_ = RankingFile::shuffled(vocab);
    std::optional<DecodeRig> rig_;
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

TEST_P(DeviceRounds, AreTheHosts) {
    int nodes = 0, accepted = 0;
    for (const char* drafter : {"eagle2", "eagle3"})
        for (const char* head :
             {"full", "fr-spec:v=6", "slimspec", "specvocab:k=5", "specvocab:k=4/6,share=per-row",
              "coral:active=3", "dynaspec:kmax=4,kmin=3", "dynaspec:kmax=4,kmin=3,share=per-row"})
            for (const double temperature : {0.0, 0.8})
                for (const char* tree :
                     {"chain=4", "depth=3,topk=4,nodes=12", "depth=4,topk=3,nodes=20,order=fr"}) {
                    if (temperature > 0 && tree[0] == 'c') continue;
                    RigSetting setting;
                    setting.drafter = drafter;
                    setting.head = head;
                    setting.temperature = temperature;
                    setting.tree = tree;
                    setting.batch = tree[0] == 'c' ? 1 : 3;
                    setting.max_new = 7;
                    // Steps of the full head beside are the host's: both kinds take turns.
                    setting.calibration_rounds = head[0] == 's' ? 3 : 0;
                    // Then the host says the path, and the device moves along it.
                    if (head[0] == 'f' && head[1] == 'r' && temperature == 0) setting.acceptance = "rate:0.7";
                    SCOPED_TRACE(to_text(setting));
                    const auto found = steps(setting, true), expected = steps(setting, false);
                    ASSERT_EQ(found.size(), expected.size());
                    for (std::size_t s = 0; s < found.size(); ++s) {
                        ASSERT_EQ(found[s].rounds.size(), expected[s].rounds.size());
                        for (std::size_t r = 0; r < found[s].rounds.size(); ++r) {
                            expect_same_round(found[s].rounds[r], expected[s].rounds[r]);
                            nodes += found[s].rounds[r].round.drafted;
                            accepted += found[s].rounds[r].round.accepted;
                        }
                    }
                    if (HasFatalFailure()) return;
                }
    EXPECT_GT(nodes, 500);
    EXPECT_GT(accepted, 20);
}

TEST_P(DeviceRounds, WaitOnce) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts waits";
    constexpr const char* heads[] = {"fr-spec:v=6", "specvocab:k=5", "coral:active=3",
                                     "dynaspec:kmax=4,kmin=3"};
    for (const char* drafter : {"eagle2", "eagle3"})
        for (const char* head : heads)
            for (const bool there : {true, false}) {
                RigSetting setting;
                setting.drafter = drafter;
                setting.head = head;
                setting.max_new = 24;
                setting.rounds_there = there;
                prompts_ = {{5, 1, 2}};
                const int before = on_.twin->finishes();
                RecordList list;
                (void)rig_->decode(setting, prompts_, &list);
                const int waits = on_.twin->finishes() - before;
                const auto rounds = static_cast<int>(RecordList::of<StepRecord>(list.take()).size());
                ASSERT_GT(rounds, 5);
                // The prompt costs a few, and memory that grows one.
                if (there)
                    EXPECT_LE(waits, rounds + 4) << drafter;
                else
                    EXPECT_GE(waits, 3 * rounds) << drafter;
            }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceRounds, device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
