#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <tuple>

#include "base/rng.h"
#include "tests/support/head_specs.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_decode.h"

/// Heads made from artefacts are lossless, whatever they propose. The target has so few tokens that a random
/// drafter's trees are often accepted.
namespace draftscope::testing {
namespace {

/// A target with drafters and artefacts of every fitted head.
class FittedFixture : protected TinyDecode {
  protected:
    explicit FittedFixture(kernels::Precision precision) : TinyDecode(few_token_options(), precision) {}

    TinyArtefacts artefacts_{fixture_};
};

const std::vector<std::string> specs =
    specs_of_heads({"specvocab:k=4", "specvocab:k=6/3/1,share=per-row", "coral:active=2", "coral:active=5",
                    "dynaspec:kmax=3,kmin=1,decay=0.5", "dynaspec:kmax=2,share=per-row", "microspec:wmax=64",
                    "microspec:wmax=9,gather=sync", "microspec:wmax=9,gather=indexed",
                    "microspec:wmax=20,stream=all,branch=path,prompt=last,bonus=yes,eos=yes"},
                   [](const HeadInfo& info) { return info.accepts_artefact(); });

/// A head spec as the name of a test.
std::string to_test_name(std::string spec) {
    for (char& c : spec)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return spec;
}

class FittedHeadTexts : public FittedFixture,
                        public ::testing::TestWithParam<std::tuple<kernels::Precision, std::string>> {
  protected:
    FittedHeadTexts() : FittedFixture(std::get<0>(GetParam())) {}
};

TEST_P(FittedHeadTexts, MatchPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        const DecodeCase plain = {
            .drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = 24};
        const auto expected = fixture_.decode(plain, varied_prompts());
        for (const bool chain : {true, false}) {
            DecodeCase setting = plain;
            setting.drafter = "eagle2";
            setting.head = std::get<1>(GetParam());
            setting.tree = chain ? "chain=3" : "depth=3,topk=4,nodes=12";
            setting.threads = chain ? 1 : 2;
            setting.batch = chain ? 1 : 3;
            expect_same_texts(fixture_.decode(setting, varied_prompts()), expected, setting);
        }
    }
}

const auto precisions = ::testing::Values(kernels::Precision::bf16, kernels::Precision::int8);

INSTANTIATE_TEST_SUITE_P(Heads, FittedHeadTexts, ::testing::Combine(precisions, ::testing::ValuesIn(specs)),
                         [](const auto& instance) {
                             return std::string(kernels::to_text(std::get<0>(instance.param))) + "_" +
                                    to_test_name(std::get<1>(instance.param));
                         });

class FittedLosslessness : public FittedFixture, public ::testing::TestWithParam<kernels::Precision> {
  protected:
    FittedLosslessness() : FittedFixture(GetParam()) {}
};

TEST_P(FittedLosslessness, CoverageAndCostMatchRound) {
    for (const std::string head : {"specvocab:k=4", "dynaspec:kmax=2", "coral:active=2"}) {
        RecordList list;
        DecodeCase setting{.head = head, .tree = "chain=3"};
        fixture_.decode(setting, {{5, 6, 7}}, &list);
        int seen = 0, covered = 0, committed = 0;
        for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
            for (const RoundRecord& round : step.rounds)
                for (const HeadEvalRow& row : round.head_evals) {
                    if (row.mode != HeadMode::drive || round.round.draft_tokens == 0) continue;
                    EXPECT_GT(row.active_rows, 0) << head;
                    EXPECT_LE(row.active_rows, few_tokens) << head;
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

INSTANTIATE_TEST_SUITE_P(Precisions, FittedLosslessness, precisions,
                         [](const auto& instance) { return std::string(kernels::to_text(instance.param)); });

}  // namespace
}  // namespace draftscope::testing
