#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/head_specs.h"
#include "tests/support/ranking_file.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

/// Heads made from artefacts are lossless, whatever they propose. The target has so few tokens that a random
/// drafter's trees are often accepted.
namespace draftscope::testing {
namespace {

constexpr int vocab = 13;

class FittedLosslessness : public ::testing::TestWithParam<kernels::Precision> {
  protected:
    static ModelFile tiny() {
        TinyModelOptions options;
        options.vocab = vocab;
        return make_tiny_model(21, options);
    }
    FittedLosslessness()
        : target_(DecodeFixture::build(tiny(), GetParam())),
          eagle_(target_->config(), 77),
          ranking_(RankingFile::shuffled(vocab)),
          fixture_(std::move(target_), {{"eagle2", eagle_.folder()}}, ranking_.path()),
          artefacts_(fixture_) {}

    static std::vector<std::vector<TokenId>> prompts() {
        std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
        for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
        Rng rng(3);
        for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(vocab)));
        return all;
    }

    std::unique_ptr<Target> target_;
    TinyEagle2 eagle_;
    RankingFile ranking_;
    DecodeFixture fixture_;
    TinyArtefacts artefacts_;
};

const std::vector<std::string> specs =
    specs_of_heads({"specvocab:k=4", "specvocab:k=6/3/1,share=per-row", "coral:active=2", "coral:active=5",
                    "dynaspec:kmax=3,kmin=1,decay=0.5", "dynaspec:kmax=2,share=per-row", "microspec:wmax=64",
                    "microspec:wmax=9,gather=sync", "microspec:wmax=9,gather=indexed",
                    "microspec:wmax=20,stream=new,prompt=last,bonus=yes,eos=yes"},
                   [](const HeadInfo& info) { return info.accepts_artefact(); });

TEST_P(FittedLosslessness, TextMatchesPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        DecodeCase plain;
        plain.drafter = "none";
        plain.tree = "chain=1";
        plain.temperature = temperature;
        plain.max_new = 24;
        const auto expected = fixture_.decode(plain, prompts());
        for (const std::string& head : specs)
            for (const std::string tree : {"chain=3", "depth=3,topk=4,nodes=12"}) {
                DecodeCase setting = plain;
                setting.drafter = "eagle2";
                setting.head = head;
                setting.tree = tree;
                setting.threads = tree == "chain=3" ? 1 : 2;
                setting.batch = tree == "chain=3" ? 1 : 3;
                const auto found = fixture_.decode(setting, prompts());
                ASSERT_EQ(found.size(), expected.size());
                std::int64_t accepted = 0;
                for (std::size_t p = 0; p < found.size(); ++p) {
                    EXPECT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
                    accepted += found[p].accepted;
                }
                EXPECT_GT(accepted, 0) << to_text(setting);
            }
    }
}

TEST_P(FittedLosslessness, CoverageAndCostMatchRound) {
    for (const std::string head : {"specvocab:k=4", "dynaspec:kmax=2", "coral:active=2"}) {
        RecordList list;
        DecodeCase setting;
        setting.head = head;
        setting.tree = "chain=3";
        fixture_.decode(setting, {{5, 6, 7}}, &list);
        int seen = 0, covered = 0, committed = 0;
        for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
            for (const RoundRecord& round : step.rounds)
                for (const HeadEvalRow& row : round.head_evals) {
                    if (row.mode != HeadMode::drive || round.round.drafted == 0) continue;
                    EXPECT_GT(row.active_rows, 0) << head;
                    EXPECT_LE(row.active_rows, vocab) << head;
                    EXPECT_GT(row.bytes, 0) << head;
                    EXPECT_GE(row.covered, row.accepted) << head;
                    covered += row.covered;
                    committed += row.committed;
                    ++seen;
                }
        EXPECT_GT(seen, 5) << head;
        EXPECT_GT(covered, 0) << head;
        EXPECT_LT(covered, committed) << head;
    }
}

INSTANTIATE_TEST_SUITE_P(Precisions, FittedLosslessness,
                         ::testing::Values(kernels::Precision::bf16, kernels::Precision::int8),
                         [](const auto& instance) { return std::string(kernels::to_text(instance.param)); });

}  // namespace
}  // namespace draftscope::testing
