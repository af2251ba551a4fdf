#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/heads/registry.h"
#include "tests/support/lm_head_fixture.h"
#include "tests/support/ranking_file.h"

namespace draftscope::testing {
namespace {

class Heads : public LmHeadFixture, public ::testing::WithParamInterface<kernels::Precision> {
  protected:
    Heads() : LmHeadFixture(GetParam()) {}

    std::unique_ptr<LmHead> make(const std::string& spec, const std::string& ranking = "") {
        artefacts_.ranking_path = ranking;
        return LmHeadFixture::make(spec);
    }
    /// Proposes and checks order, ties, support and logsumexp against the dense logits.
    void check(LmHead& head, const std::vector<TokenId>& support, int k) {
        const Proposal found = propose(head, 2, k);
        ASSERT_EQ(found.k, k);
        for (int r = 0; r < rows; ++r) expect_row(found, r, logits_[r], support);
    }

    const std::vector<std::vector<float>> logits_ = dense();
};

TEST_P(Heads, FullProposesTheBestRealTokens) {
    const auto head = make("full");
    std::vector<TokenId> support(vocab);
    std::iota(support.begin(), support.end(), 0);
    check(*head, support, 10);
    check(*head, support, vocab);
    EXPECT_TRUE(saw(Phase::head) && saw(Phase::topk));
    EXPECT_FALSE(saw(Phase::gather));
    EXPECT_EQ(covered(*head, 0), support);
    EXPECT_EQ(head->cost(3).active_rows, padded);
    EXPECT_EQ(head->cost(3).bytes, matrix_.bytes());
}

TEST_P(Heads, FrSpecLogitsMatchFullHeadBitForBit) {
    const RankingFile ranking(descending_ids());
    const auto head = make("fr-spec:v=40,eos=yes", ranking.path());
    std::vector<TokenId> support = {0, 2};  // always active, in place of the two least frequent tokens
    for (int i = vocab - 38; i < vocab; ++i) support.push_back(i);
    check(*head, support, 10);
    EXPECT_FALSE(saw(Phase::gather));  // the tree maps the ids
    EXPECT_EQ(covered(*head, 1), support);
    EXPECT_EQ(head->cost(1).active_rows, 40);

    const std::vector<float> found = scores(*head);
    for (int r = 0; r < rows; ++r)
        for (TokenId id = 0; id < vocab; ++id) {
            const float score = found[r * vocab + id];
            if (std::binary_search(support.begin(), support.end(), id))
                EXPECT_EQ(score, logits_[r][id]);
            else
                EXPECT_TRUE(std::isinf(score) && score < 0);
        }
}

/// A ranking in FR-Spec's published format: a list of ids saved by torch.
TEST_P(Heads, FrSpecReadsItsPublishedRankings) {
    const std::string path = std::string(DS_SOURCE_DIR) + "/tests/golden/drafters/freq_4.pt";
    check(*make("fr-spec:v=5,eos=yes", path), {0, 2, 5, 3, 200}, 5);
    check(*make("fr-spec:v=6,eos=yes", path), {0, 2, 5, 3, 200, 7}, 6);
}

TEST_P(Heads, FrSpecTiesGoToLowerIdForAnyRanking) {
    std::vector<std::int32_t> ids = {41, 40, 41, 40, 7, 9};  // duplicates count once
    const RankingFile ranking(ids);
    check(*make("fr-spec:v=6,eos=yes", ranking.path()), {0, 2, 41, 40, 7, 9}, 6);
}

TEST_P(Heads, ADraftersTrimmedHeadProposesTargetIds) {
    // The 300 rows are tokens 1 .. 300: token 0 is not in the drafter's vocabulary.
    std::vector<TokenId> ids(vocab - 1);
    std::iota(ids.begin(), ids.end(), 1);
    const kernels::Matrix trimmed = matrix_.gather_rows(exec_->pool(), ids);
    weights_.lm_head = &trimmed;
    weights_.row_ids = ids;
    check(*make("full"), ids, 10);
    EXPECT_EQ(covered(*make("full"), 0), ids);
    const RankingFile ranking(descending_ids());
    check(*make("fr-spec:v=3,eos=yes", ranking.path()), {2, vocab - 2, vocab - 1}, 3);
}

TEST_P(Heads, ShortlistsSmallerThanKAreClipped) {
    const RankingFile ranking(descending_ids());
    check(*make("fr-spec:v=3,eos=yes", ranking.path()), {0, 2, vocab - 1}, 10);
}

TEST_P(Heads, FrSpecKeepsAQuarterByDefault) {
    const RankingFile ranking(descending_ids());
    EXPECT_EQ(make("fr-spec", ranking.path())->cost(1).active_rows, 128);  // 301 / 4, in steps of 64
}

TEST_P(Heads, RejectsMismatchedRankings) {
    const auto error_message = [&](const std::string& spec, const std::string& ranking) {
        artefacts_.ranking_path = ranking;
        return LmHeadFixture::error_message(spec);
    };
    const RankingFile good(descending_ids()), foreign({1, 2, vocab}), small({5, 6, 7}), wrong({1}, "freq");
    EXPECT_THAT(error_message("fr-spec:v=302", good.path()), ::testing::HasSubstr("v=302"));
    EXPECT_THAT(error_message("fr-spec:v=2", foreign.path()), ::testing::HasSubstr("token 301"));
    EXPECT_THAT(error_message("fr-spec:v=9", small.path()),
                ::testing::HasSubstr("has only 3 distinct tokens"));
    EXPECT_THAT(error_message("fr-spec:v=9", wrong.path()), ::testing::HasSubstr("'ids'"));
    EXPECT_THAT(error_message("fr-spec:v=9", ""), ::testing::HasSubstr("--head-weights fr-spec=FILE"));
}

INSTANTIATE_TEST_SUITE_P(AllPrecisions, Heads,
                         ::testing::Values(kernels::Precision::f32, kernels::Precision::bf16,
                                           kernels::Precision::int8),
                         [](const auto& param_info) { return std::string(to_text(param_info.param)); });

TEST(HeadSpec, ReadsAndWritesTheTextForm) {
    EXPECT_EQ(to_text(parse_head_spec(" fr-spec : v = 8192 ").value()), "fr-spec:v=8192");
    EXPECT_EQ(to_text(parse_head_spec("full").value()), "full");
    EXPECT_EQ(to_text(parse_head_spec("x:b=2,a=1/2").value()), "x:a=1/2,b=2");
    for (const char* text : {"", ":v=1", "full:", "full:v", "full:v=", "full:=3", "full:v=1,v=2"})
        EXPECT_FALSE(parse_head_spec(text).ok()) << text;
}

TEST(HeadSpec, ErrorsNameParameterAndRange) {
    const auto error_message = [](const char* text) {
        const auto head = make_head(parse_head_spec(text).value(), {});
        return head.ok() ? std::string() : head.error().message;
    };
    EXPECT_THAT(error_message("slim"), ::testing::StartsWith("unknown head slim; known: full, fr-spec"));
    EXPECT_EQ(error_message("full:v=3"), "head full: unknown parameter v=3; known: softmax");
    EXPECT_EQ(error_message("fr-spec:k=3"), "head fr-spec: unknown parameter k=3; known: v, eos, softmax");
    EXPECT_EQ(error_message("fr-spec:v=0"), "head fr-spec: v=0 is outside 1..1048576");
    EXPECT_EQ(error_message("fr-spec:v=abc"), "head fr-spec: v=abc is not a number");
    EXPECT_EQ(error_message("fr-spec:v=1.5"), "head fr-spec: v=1.5 is not a whole number");
}

TEST(HeadRegistry, EntriesAreComplete) {
    std::set<std::string_view> ids;
    std::set<std::uint32_t> colours;
    for (const HeadInfo& info : head_registry()) {
        EXPECT_TRUE(ids.insert(info.id).second) << info.id;
        EXPECT_TRUE(colours.insert(info.rgb).second) << info.id;
        EXPECT_FALSE(info.name.empty() || info.paper.empty() || info.make == nullptr) << info.id;
        EXPECT_EQ(find_head(info.id), &info);
        // What `fit` writes is what the head reads.
        EXPECT_EQ(info.fit.has(FitRecipe::rankings), info.accepts_ranking()) << info.id;
        EXPECT_EQ(info.fit.has(FitRecipe::weights), info.accepts_artefact()) << info.id;
        EXPECT_EQ(info.synthesize != nullptr, info.required_file == RequiredFile::fitted) << info.id;
        const auto is_size = [&](const HeadParam& param) { return param.name == info.size.name; };
        EXPECT_EQ(std::ranges::any_of(info.params, is_size), !info.size.name.empty()) << info.id;
    }
    EXPECT_EQ(find_head("nothing"), nullptr);
    EXPECT_EQ(find_head(rdk_suffix().id), nullptr);
    EXPECT_EQ(find_head_or_suffix(rdk_suffix().id), &rdk_suffix());
}

/// Captures of earlier versions show a head as its registry entry says.
TEST(HeadRegistry, AgreesWithPublishedTraits) {
    for (const HeadInfo& info : head_registry()) {
        const HeadTraits published = published_head_traits(info.id);
        if (published == HeadTraits()) continue;  // without published results
        const std::string id(info.id);
        EXPECT_EQ(published, capture_traits({id, {}})) << id;
        const HeadSpec spread{id, {{"v", "8"}}, true};
        EXPECT_EQ(published_head_traits(to_text(spread)), capture_traits(spread)) << id;
    }
    EXPECT_NE(published_head_traits("fr-spec:v=8192"), HeadTraits());
}

}  // namespace
}  // namespace draftscope::testing
