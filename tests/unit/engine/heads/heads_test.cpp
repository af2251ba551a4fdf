#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/numel.h"
#include "base/rng.h"
#include "engine/heads/registry.h"
#include "kernels/matmul.h"
#include "tests/support/ranking_file.h"

namespace draftscope {
namespace {

constexpr int vocab = 301, padded = 304, hidden = 64;

using testing::RankingFile;

std::vector<std::int32_t> descending_ids() {
    std::vector<std::int32_t> ids;
    for (int i = vocab - 1; i >= 0; --i) ids.push_back(i);
    return ids;
}

class Heads : public ::testing::TestWithParam<kernels::Precision> {
  protected:
    void SetUp() override {
        exec_ = kernels::make_cpu_exec(2);
        matrix_ = kernels::Matrix::pack(*exec_, GetParam(), padded, hidden, [](int row, float* out) {
            Rng rng(11, static_cast<std::uint64_t>(row));
            // Rows 40 and 41 are equal: a tie in every logit.
            if (row == 41) rng = Rng(11, 40);
            for (int k = 0; k < hidden; ++k)
                out[k] = row >= vocab ? 100.0f : static_cast<float>(rng.normal());
        });
        weights_.lm_head = &matrix_;
        weights_.always_active = {0, 2};
        weights_.vocab = vocab;
        weights_.hidden = hidden;
        Rng rng(3);
        inputs_.resize(rows_ * hidden);
        for (float& value : inputs_) value = static_cast<float>(rng.normal());
        logits_.resize(rows_ * padded);
        kernels::matmul(*exec_, matrix_, input(),
                        Rows<float>(logits_.data(), static_cast<int>(rows_), padded));
    }

    Rows<const float> input() const { return {inputs_.data(), static_cast<int>(rows_), hidden}; }
    float logit(int row, TokenId id) const {
        return logits_[numel(row, padded) + static_cast<std::size_t>(id)];
    }
    std::unique_ptr<LmHead> make(const std::string& text, const HeadFiles& artefacts = {}) {
        auto head = make_head(parse_head_spec(text).value(), artefacts);
        EXPECT_TRUE(head.ok()) << head.error().message;
        const Status ready = (*head)->prepare(*exec_, weights_);
        EXPECT_TRUE(ready.ok()) << ready.error().message;
        return std::move(head).value();
    }
    /// Proposes and checks order, ties, support and logsumexp against the dense logits.
    void check(LmHead& head, const std::vector<TokenId>& support, int k) {
        PhaseRecorder phases;
        ProposeContext context{*exec_, phases, 2};
        Proposal out;
        head.propose(context, input(), {}, k, out);
        ASSERT_EQ(out.k, k);
        const int kept = std::min<int>(k, static_cast<int>(support.size()));
        for (int r = 0; r < static_cast<int>(rows_); ++r) {
            std::vector<TokenId> order = support;
            std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
                return logit(r, a) != logit(r, b) ? logit(r, a) > logit(r, b) : a < b;
            });
            ASSERT_EQ(out.counts[r], kept);
            double sum = 0;
            for (const TokenId id : support) sum += std::exp(static_cast<double>(logit(r, id)));
            EXPECT_NEAR(out.logsumexp[r], std::log(sum), 1e-4);
            for (int i = 0; i < kept; ++i) {
                const auto cell = static_cast<std::size_t>(r * k + i);
                EXPECT_EQ(out.ids[cell], order[i]) << "row " << r << " rank " << i;
                EXPECT_EQ(out.logits[cell], logit(r, order[i]));
            }
        }
        events_.clear();
        phases.drain(events_);
    }
    bool saw(Phase phase) const {
        return std::any_of(events_.begin(), events_.end(),
                           [&](const SpanEvent& e) { return e.phase == phase; });
    }

    static constexpr std::size_t rows_ = 5;
    std::unique_ptr<kernels::Exec> exec_;
    kernels::Matrix matrix_;
    HeadWeights weights_;
    std::vector<float> inputs_, logits_;
    std::vector<SpanEvent> events_;
};

TEST_P(Heads, FullProposesTheBestRealTokens) {
    const auto head = make("full");
    std::vector<TokenId> support(vocab);
    for (int i = 0; i < vocab; ++i) support[i] = i;
    check(*head, support, 10);
    check(*head, support, vocab);
    EXPECT_TRUE(saw(Phase::head) && saw(Phase::topk) && saw(Phase::softmax));
    EXPECT_FALSE(saw(Phase::gather));
    EXPECT_TRUE(head->covers(nullptr, vocab - 1, 0));
    EXPECT_FALSE(head->covers(nullptr, vocab, 0));
    EXPECT_EQ(head->cost(3).active_rows, padded);
    EXPECT_EQ(head->cost(3).bytes, matrix_.bytes());
}

TEST_P(Heads, FrSpecLogitsMatchFullHeadBitForBit) {
    const RankingFile ranking(descending_ids());
    const auto head = make("fr-spec:v=40", {ranking.path()});
    std::vector<TokenId> support = {0, 2};  // always active, in place of the two least frequent tokens
    for (int i = vocab - 38; i < vocab; ++i) support.push_back(i);
    check(*head, support, 10);
    EXPECT_TRUE(saw(Phase::gather) && saw(Phase::remap));
    for (TokenId id = 0; id < vocab; ++id)
        EXPECT_EQ(head->covers(nullptr, id, 1),
                  std::find(support.begin(), support.end(), id) != support.end());
    EXPECT_EQ(head->cost(1).active_rows, 40);

    std::vector<float> scores(rows_ * vocab, 0.0f);
    head->scores(*exec_, input(), nullptr, 0, Rows<float>(scores.data(), static_cast<int>(rows_), vocab));
    for (int r = 0; r < static_cast<int>(rows_); ++r)
        for (TokenId id = 0; id < vocab; ++id) {
            const float score = scores[r * vocab + id];
            if (head->covers(nullptr, id, 0))
                EXPECT_EQ(score, logit(r, id));
            else
                EXPECT_TRUE(std::isinf(score) && score < 0);
        }
}

/// A ranking in FR-Spec's published format: a list of ids saved by torch.
TEST_P(Heads, FrSpecReadsItsPublishedRankings) {
    const std::string path = std::string(DS_SOURCE_DIR) + "/tests/golden/drafters/freq_4.pt";
    check(*make("fr-spec:v=5", {path}), {0, 2, 5, 3, 200}, 5);
    check(*make("fr-spec:v=6", {path}), {0, 2, 5, 3, 200, 7}, 6);
}

TEST_P(Heads, FrSpecTiesGoToLowerIdForAnyRanking) {
    std::vector<std::int32_t> ids = {41, 40, 41, 40, 7, 9};  // duplicates count once
    const RankingFile ranking(ids);
    check(*make("fr-spec:v=6", {ranking.path()}), {0, 2, 41, 40, 7, 9}, 6);
}

TEST_P(Heads, ADraftersTrimmedHeadProposesTargetIds) {
    // The 300 rows are tokens 1 .. 300: token 0 is not in the drafter's vocabulary.
    std::vector<TokenId> rows(vocab - 1);
    for (int i = 0; i < vocab - 1; ++i) rows[i] = i + 1;
    const kernels::Matrix trimmed = matrix_.gather_rows(*exec_, rows);
    weights_.lm_head = &trimmed;
    weights_.row_ids = rows;
    check(*make("full"), rows, 10);
    EXPECT_TRUE(saw(Phase::remap));
    EXPECT_FALSE(make("full")->covers(nullptr, 0, 0));
    const RankingFile ranking(descending_ids());
    check(*make("fr-spec:v=3", {ranking.path()}), {2, vocab - 2, vocab - 1}, 3);
}

TEST_P(Heads, ShortlistsSmallerThanKAreClipped) {
    const RankingFile ranking(descending_ids());
    check(*make("fr-spec:v=3", {ranking.path()}), {0, 2, vocab - 1}, 10);
}

TEST_P(Heads, FrSpecKeepsAQuarterByDefault) {
    const RankingFile ranking(descending_ids());
    EXPECT_EQ(make("fr-spec", {ranking.path()})->cost(1).active_rows, 128);  // 301 / 4, in steps of 64
}

TEST_P(Heads, RejectsMismatchedRankings) {
    const auto error_message = [&](const std::string& text, const HeadFiles& artefacts) {
        auto head = make_head(parse_head_spec(text).value(), artefacts);
        if (!head.ok()) return head.error().message;
        const Status ready = (*head)->prepare(*exec_, weights_);
        return ready.ok() ? std::string() : ready.error().message;
    };
    const RankingFile good(descending_ids()), foreign({1, 2, vocab}), small({5, 6, 7}), wrong({1}, "freq");
    EXPECT_THAT(error_message("fr-spec:v=302", {good.path()}), ::testing::HasSubstr("v=302"));
    EXPECT_THAT(error_message("fr-spec:v=2", {foreign.path()}), ::testing::HasSubstr("token 301"));
    EXPECT_THAT(error_message("fr-spec:v=9", {small.path()}),
                ::testing::HasSubstr("has only 5 distinct tokens"));
    EXPECT_THAT(error_message("fr-spec:v=9", {wrong.path()}), ::testing::HasSubstr("'ids'"));
    EXPECT_THAT(error_message("fr-spec:v=9", {}), ::testing::HasSubstr("--head-weights fr-spec=FILE"));
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
    EXPECT_EQ(error_message("full:v=3"), "head full: unknown parameter v=3; it takes none");
    EXPECT_EQ(error_message("fr-spec:k=3"), "head fr-spec: unknown parameter k=3; known: v");
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
        EXPECT_EQ(info.fit.ranks(), info.accepts_ranking()) << info.id;
        EXPECT_EQ(info.fit.fits_weights(), info.accepts_artefact()) << info.id;
        EXPECT_EQ(info.synthesize != nullptr, info.required_file == RequiredFile::fitted) << info.id;
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
}  // namespace draftscope
