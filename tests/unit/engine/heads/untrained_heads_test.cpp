#include <algorithm>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "engine/formats/model_file.h"
#include "engine/heads/bcl.h"
#include "engine/heads/head_common.h"
#include "engine/sequence/round_rows.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/head_specs.h"
#include "tests/support/lm_head_fixture.h"
#include "tests/support/ranking_file.h"
#include "tests/support/results.h"
#include "tests/support/tiny_decode.h"
#include "tests/support/tiny_model.h"

/// Heads that need no training, except FR-Spec: the tokens that each keeps, and losslessness.
namespace draftscope::testing {
namespace {

constexpr int vocab = LmHeadFixture::vocab;

class UntrainedHeads : public LmHeadFixture {
  protected:
    UntrainedHeads() { use_ranking(std::make_unique<RankingFile>(descending_ids())); }

    void use_ranking(std::unique_ptr<RankingFile> ranking) {
        ranking_ = std::move(ranking);
        artefacts_.ranking_path = ranking_->path();
    }
    void use_ranking(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& counts) {
        use_ranking(std::make_unique<RankingFile>(ids, counts));
    }

  private:
    std::unique_ptr<RankingFile> ranking_;
};

void expect_equal(const Proposal& found, const Proposal& expected) {
    EXPECT_EQ(found.counts, expected.counts);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.logits, expected.logits);
    EXPECT_EQ(found.logsumexp, expected.logsumexp);
}

/// Counts that decrease as in natural text: 6000 / (rank + 1).
std::vector<std::int32_t> descending_counts() {
    std::vector<std::int32_t> counts(vocab);
    for (int i = 0; i < vocab; ++i) counts[i] = 6000 / (i + 1);
    return counts;
}

TEST_F(UntrainedHeads, FullSizeEqualsFullHead) {
    const auto full = make("full");
    for (const char* text : {"vocabtrim:v=301", "pa-fr:v=301", "pa-fr:v=301/301/301"}) {
        SCOPED_TRACE(text);
        const auto head = make(text);
        for (const int level : {0, 1, 4}) expect_equal(propose(*head, level, 10), propose(*full, level, 10));
        EXPECT_EQ(scores(*head), scores(*full));
        EXPECT_EQ(covered(*head, 2), covered(*full, 2));
    }
}

TEST_F(UntrainedHeads, VocabTrimMatchesFrSpecWithSameRanking) {
    const auto trim = make("vocabtrim:v=40"), fr = make("fr-spec:v=40");
    expect_equal(propose(*trim, 1, 10), propose(*fr, 1, 10));
    EXPECT_EQ(covered(*trim, 1), covered(*fr, 1));
    EXPECT_EQ(trim->cost(1).bytes, fr->cost(1).bytes);
    EXPECT_EQ(make("vocabtrim")->cost(1).active_rows, 128);
    const auto without = make_head(parse_head_spec("vocabtrim").value(), {});
    ASSERT_FALSE(without.ok());
    EXPECT_THAT(without.error().message, ::testing::HasSubstr("--head-weights vocabtrim=FILE"));
    EXPECT_THAT(std::string(find_head("vocabtrim")->artefact), ::testing::HasSubstr("target's generations"));
}

/// FR-Spec's figure 6 has softmax as a step of its own.
TEST_F(UntrainedHeads, SeparateSoftmaxChangesTheTimesOnly) {
    for (const std::string text : {"full", "fr-spec:v=40", "pa-fr:v=60/3"}) {
        SCOPED_TRACE(text);
        const auto fused = make(text);
        const auto separate = make(text + (text == "full" ? ":" : ",") + "softmax=separate");
        for (const int level : {0, 1}) {
            events_.clear();
            const Proposal expected = propose(*fused, level, 3);
            EXPECT_FALSE(saw(Phase::softmax));
            expect_equal(propose(*separate, level, 3), expected);
            EXPECT_TRUE(saw(Phase::head) && saw(Phase::softmax) && saw(Phase::topk));
        }
        EXPECT_EQ(scores(*separate), scores(*fused));
    }
}

/// The papers keep the ranking's first tokens, whether they end the text or not.
TEST_F(UntrainedHeads, TokensThatEndTheTextAreKeptOnRequest) {
    weights_.always_active = {0, 2};  // last in the ranking
    use_ranking(descending_ids(), descending_counts());
    for (const std::string text : {"fr-spec:v=40", "vocabtrim:v=40", "pa-fr:v=40"}) {
        SCOPED_TRACE(text);
        const auto plain = make(text), ended = make(text + ",eos=yes");
        std::vector<TokenId> first = covered(*plain, 0), kept = covered(*ended, 0);
        EXPECT_EQ(first.back() - first.front() + 1, static_cast<int>(first.size()));  // no gap
        EXPECT_EQ(first.back(), vocab - 1);
        ASSERT_EQ(kept.size(), first.size());
        EXPECT_EQ(kept[0], 0);
        EXPECT_EQ(kept[1], 2);
        EXPECT_TRUE(std::equal(kept.begin() + 2, kept.end(), first.begin() + 2));
    }
    EXPECT_GT(covered(*make("bcl:alpha=0.5"), 0).front(), 2);
    EXPECT_EQ(covered(*make("bcl:alpha=0.5,eos=yes"), 0).front(), 0);
}

TEST_F(UntrainedHeads, PaFrMatchesFrSpecAtEachLevel) {
    const auto head = make("pa-fr:v=60/40/40/3");
    const std::vector<int> sizes = {60, 40, 40, 3, 3, 3};
    for (int level = 0; level < static_cast<int>(sizes.size()); ++level) {
        SCOPED_TRACE(level);
        const int size = sizes[level];
        const auto fixed = make("fr-spec:v=" + std::to_string(size));
        expect_equal(propose(*head, level, 10), propose(*fixed, level, 10));
        EXPECT_EQ(covered(*head, level), covered(*fixed, level));
        EXPECT_EQ(head->cost_at(nullptr, 4, level).active_rows, size);
        EXPECT_EQ(head->cost_at(nullptr, 4, level).bytes, fixed->cost(4).bytes);
    }
    EXPECT_EQ(scores(*head), scores(*make("fr-spec:v=60")));
}

TEST_F(UntrainedHeads, PaFrShrinksByDefault) {
    const auto head = make("pa-fr");
    for (const auto& [level, size] : {std::pair{0, 192}, {1, 128}, {2, 128}, {3, 64}, {5, 64}, {9, 64}})
        EXPECT_EQ(head->cost_at(nullptr, 1, level).active_rows, size);
}

TEST_F(UntrainedHeads, PaFrHasDynaSpecsMeanSize) {
    double sum = 0;
    for (const int parts : {2, 3, 4, 6, 8, 9}) sum += vocab_fraction(128256, parts);
    EXPECT_NEAR(sum / 6, 31739, 60);  // DynaSpec, appendix A.1
}

TEST_F(UntrainedHeads, PaFrRejectsInvalidLists) {
    EXPECT_EQ(error_message("pa-fr:v=40/0"), "head pa-fr: v=0 is outside 1..1048576");
    EXPECT_EQ(error_message("pa-fr:v=40/"), "head pa-fr: v= is not a number");
    EXPECT_EQ(error_message("pa-fr:v=40/1.5"), "head pa-fr: v=1.5 is not a whole number");
    EXPECT_THAT(error_message("pa-fr:v=40/302"), ::testing::HasSubstr("v=302 does not fit"));
    EXPECT_EQ(error_message("fr-spec:v=40/20"), "head fr-spec: v=40/20 is not a number");
}

/// Reference by definition, with new sets and sums for each size.
int brute_force_size(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& counts,
                     const std::vector<TokenId>& always, double backbone, double per_row, double alpha) {
    double best = -1;
    int best_size = 0;
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    for (int m = static_cast<int>(always.size()); m <= static_cast<int>(ids.size()); ++m) {
        std::set<TokenId> kept(always.begin(), always.end());
        for (const TokenId id : ids)
            if (static_cast<int>(kept.size()) < m) kept.insert(id);
        double covered = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) covered += kept.count(ids[i]) > 0 ? counts[i] : 0;
        const double latency = (backbone + m * per_row) / (backbone + vocab * per_row);
        const double utility = alpha * covered / total + (1 - alpha) * (1 - latency);
        if (utility <= best) continue;
        best = utility;
        best_size = m;
    }
    return best_size;
}

TEST(BclSize, StopsWhenCostExceedsCoverage) {
    // 50, 30, 10, 5, 5 of 100; a token costs 1 / 20 of the total, so it pays if its share exceeds 0.05.
    const std::vector<std::int64_t> counts = {50, 30, 10, 5, 5};
    EXPECT_EQ(solve_bcl_size(counts, 1, 10, {10, 1}, 0.5), 3);
    EXPECT_EQ(solve_bcl_size(counts, 4, 10, {10, 1}, 0.5), 4);
    EXPECT_EQ(solve_bcl_size(counts, 1, 10, {10, 1}, 1.0), 5);
    EXPECT_EQ(solve_bcl_size(counts, 1, 10, {10, 1}, 0.0), 1);
    // Half the weight on coverage with a backbone nine times as expensive: every token pays.
    EXPECT_EQ(solve_bcl_size(counts, 1, 10, {90, 1}, 0.5), 5);
    EXPECT_EQ(solve_bcl_size(std::vector<std::int64_t>{7, 0, 0}, 1, 3, {0, 1}, 1.0), 1);
}

/// The size that tools/make_bcl_golden.py finds in the shipped ranking.
TEST(BclSize, MatchesGoldenSizesOfDemoRanking) {
    const auto file =
        require(open_safetensors(std::string(DS_SOURCE_DIR) + "/assets/heads/demo_ranking.safetensors"));
    const auto counts = require(file->read_integers("counts"));
    constexpr int tokens = 49152;
    const DraftPassCost cost{2 * 4e6, 2.0 * 576};
    EXPECT_EQ(solve_bcl_size(counts, 1, tokens, cost, 0.3), 1987);
    EXPECT_EQ(solve_bcl_size(counts, 1, tokens, cost, 0.5), 4026);
    EXPECT_EQ(solve_bcl_size(counts, 1, tokens, cost, 0.7), 6452);
    EXPECT_EQ(solve_bcl_size(counts, 1, tokens, cost, 0.9), 11817);
}

TEST_F(UntrainedHeads, BclSizeMatchesBruteForce) {
    const auto ids = descending_ids();
    const auto counts = descending_counts();
    use_ranking(ids, counts);
    weights_.drafter_bytes = 12345;
    const double row_bytes = static_cast<double>(matrix_.bytes()) / padded;
    const double backbone_weights = weights_.drafter_bytes / (row_bytes / hidden);
    std::set<int> sizes;
    for (const double alpha : {0.1, 0.3, 0.5, 0.7, 0.9}) {
        const std::string spec = fmt::format("bcl:alpha={},eos=yes", alpha);
        const int by_flops =
            brute_force_size(ids, counts, weights_.always_active, 2 * backbone_weights, 2.0 * hidden, alpha);
        const int by_bytes = brute_force_size(ids, counts, weights_.always_active, weights_.drafter_bytes,
                                              row_bytes + 12, alpha);
        const auto head = make(spec);
        EXPECT_EQ(head->cost(1).active_rows, by_flops) << alpha;
        EXPECT_EQ(make(spec + ",bytes=1")->cost(1).active_rows, by_bytes) << alpha;
        const auto fixed = make(fmt::format("fr-spec:v={},eos=yes", by_flops));
        expect_equal(propose(*head, 1, 10), propose(*fixed, 1, 10));
        sizes.insert(by_flops);
    }
    EXPECT_EQ(sizes.size(), 5u);
    EXPECT_EQ(make("bcl")->cost(1).active_rows, make("bcl:alpha=0.5")->cost(1).active_rows);
    // With all weight on coverage every counted token is kept: the full head.
    expect_equal(propose(*make("bcl:alpha=1"), 2, 10), propose(*make("full"), 2, 10));
}

TEST_F(UntrainedHeads, BclCountsTokensOfTrimmedDrafterHead) {
    std::vector<TokenId> held(100);
    std::iota(held.begin(), held.end(), 150);
    const kernels::Matrix own = matrix_.gather_rows(exec_->pool(), held);
    use_ranking(descending_ids(), descending_counts());
    weights_.lm_head = &own;
    weights_.row_ids = held;
    EXPECT_EQ(make("bcl:alpha=1")->cost(1).active_rows, 100);
    EXPECT_EQ(make("bcl:alpha=0")->cost(1).active_rows, 1);
}

TEST_F(UntrainedHeads, BclRejectsRankingsWithoutUsableCounts) {
    EXPECT_THAT(error_message("bcl"), ::testing::HasSubstr("'counts'"));
    use_ranking({1, 2, 3}, {5, 4});
    EXPECT_THAT(error_message("bcl"), ::testing::HasSubstr("2 values for 3 ids"));
    use_ranking({1, 2, 3}, {0, 0, 0});
    EXPECT_THAT(error_message("bcl"), ::testing::HasSubstr("only zeros"));
    use_ranking({1, 2, 3}, {3, 2, -1});
    EXPECT_THAT(error_message("bcl"), ::testing::HasSubstr("contains -1"));
    EXPECT_EQ(error_message("bcl:alpha=1.5"), "head bcl: alpha=1.5 is outside 0..1");
}

/// A target of so few tokens that a random drafter's trees are often accepted.
class UntrainedLosslessness : public ::testing::Test, protected TinyDecode {
  protected:
    UntrainedLosslessness() : TinyDecode(few_token_options(), kernels::Precision::int8) {}
};

const std::vector<std::string> specs =
    specs_of_heads({"vocabtrim:v=2", "vocabtrim:v=6", "pa-fr:v=13/6/2", "bcl:alpha=0.4", "microspec:wmax=64",
                    "microspec:wmax=5,kver=7", "microspec:source=ctx", "microspec:source=ext"},
                   [](const HeadInfo& info) { return info.required_file != RequiredFile::fitted; });

TEST_F(UntrainedLosslessness, TextMatchesPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        DecodeCase plain{.drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = 32};
        const auto expected = fixture_.decode(plain, varied_prompts());
        for (const std::string& head : specs)
            for (const std::string tree : {"chain=3", "depth=3,topk=4,nodes=12"}) {
                DecodeCase setting = plain;
                setting.drafter = "eagle2";
                setting.head = head;
                setting.tree = tree;
                setting.threads = 2;
                expect_same_texts(fixture_.decode(setting, varied_prompts()), expected, setting);
            }
    }
}

TEST_F(UntrainedLosslessness, ActiveRowsAreMeanOverLevels) {
    RecordList list;
    DecodeCase setting{.head = "pa-fr:v=13/6/2", .tree = "chain=3"};
    fixture_.decode(setting, {{5, 6, 7}}, &list);
    const auto records = list.take();
    int seen = 0;
    for (const StepRecord& step : RecordList::of<StepRecord>(records))
        for (const RoundRecord& round : step.rounds)
            for (const HeadEvalRow& row : round.head_evals) {
                if (row.mode != HeadMode::drive || round.round.tree_depth < 3) continue;
                EXPECT_DOUBLE_EQ(row.active_rows, (13 + 6 + 2) / 3.0);
                ++seen;
            }
    EXPECT_GT(seen, 0);
}

TEST_F(UntrainedLosslessness, MicroSpecReceivesTargetsBestTokens) {
    // With an unlimited window, coverage requires the session's calls. The first token is among the best of
    // the last prompt position, later ones among the best of the path.
    RecordList list;
    DecodeCase setting;
    setting.head = "microspec:kver=1,kpre=1";
    fixture_.decode(setting, {{5}, {7, 1}}, &list);
    int seen = 0;
    std::set<RowId> prompts_seen;
    for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
        for (const RoundRecord& round : step.rounds) {
            if (prompts_seen.insert(round.round.prompt_id).second) {
                // The active set of a first round: the prompt and its best tokens, including the root.
                ASSERT_FALSE(round.head_evals.empty());
                EXPECT_GE(round.head_evals.front().active_rows, 2);
                EXPECT_LE(round.head_evals.front().active_rows, 4);
            }
            EXPECT_EQ(round.tops.size() % num_top_tokens, 0u);
            seen += static_cast<int>(round.tops.size());
        }
    EXPECT_EQ(prompts_seen.size(), 2u);
    EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace draftscope::testing
