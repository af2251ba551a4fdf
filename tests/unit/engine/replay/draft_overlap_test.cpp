#include "engine/replay/draft_overlap.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/lm_head_fixture.h"
#include "tests/support/ranking_file.h"

namespace draftscope::testing {
namespace {

class DraftOverlap : public LmHeadFixture {
  protected:
    DraftOverlap() { artefacts_.ranking_path = ranking_.path(); }
    RankingFile ranking_{descending_ids()};
};

/// The drafts are those of the head itself, and q is the softmax of the logits that it samples from.
TEST_F(DraftOverlap, KeepsTheDistributionOfEachDraft) {
    constexpr double temperature = 0.7;
    DraftJob chain;
    chain.rows_per_call = {1, 1};
    for (const std::string text : {"full", "fr-spec:v=40", "pa-fr:v=60/3", "microspec:eos=yes"}) {
        SCOPED_TRACE(text);
        const auto head = make(text), same = make(text);
        OverlapHead overlap(*head, {.temperature = temperature});
        const std::vector<TokenId> prompt = {5, 9, 40, 41, 300};
        const auto state = overlap.begin_prompt(prompt, {}), same_state = same->begin_prompt(prompt, {});
        for (const int level : {0, 1}) {
            const Rows<const float> row = input().slice(level, 1);
            const Proposal found = propose(overlap, row, level, 1, {state.get()});
            const Proposal expected = propose(*same, row, level, 1, {same_state.get()});
            EXPECT_EQ(found.ids, expected.ids);
            EXPECT_EQ(found.logits, expected.logits);
            EXPECT_NEAR(found.logsumexp[0], expected.logsumexp[0], 1e-5);
            const DraftDistribution* const q = overlap.distribution(chain, level);
            ASSERT_NE(q, nullptr);
            EXPECT_NEAR(std::accumulate(q->probs.begin(), q->probs.end(), 0.0), 1, 1e-5);
            if (!q->tokens.empty()) {
                EXPECT_EQ(q->tokens, covered(*same, level, same_state.get()));
            }
            const auto best = std::max_element(q->probs.begin(), q->probs.end()) - q->probs.begin();
            EXPECT_EQ(q->tokens.empty() ? static_cast<TokenId>(best) : q->tokens[best], expected.ids[0]);
            if (text != "full") continue;
            const std::vector<float> logits = dense()[level];
            double sum = 0;
            for (const float logit : logits) sum += std::exp((logit - expected.logits[0]) / temperature);
            for (int id = 0; id < vocab; ++id)
                EXPECT_NEAR(q->probs[id], std::exp((logits[id] - expected.logits[0]) / temperature) / sum,
                            1e-5);
        }
        EXPECT_EQ(overlap.distribution(chain, 2), nullptr);
        chain.sequence = 1;
        EXPECT_EQ(overlap.distribution(chain, 0), nullptr);
        chain.sequence = 0;
    }
}

/// q is cut as `--verify pq` cuts it in live rounds.
TEST_F(DraftOverlap, CutsByTopKAndTopP) {
    constexpr double temperature = 0.7;
    DraftJob chain;
    chain.rows_per_call = {1};
    const auto head = make("fr-spec:v=40");
    OverlapHead all(*head, {.temperature = temperature}),
        four(*head, {.temperature = temperature, .top_k = 4}),
        half(*head, {.temperature = temperature, .top_p = 0.5});
    std::vector<DraftDistribution> found;
    for (OverlapHead* overlap : {&all, &four, &half}) {
        propose(*overlap, input().slice(0, 1), 0, 1, {nullptr});
        found.push_back(*overlap->distribution(chain, 0));
        EXPECT_NEAR(std::accumulate(found.back().probs.begin(), found.back().probs.end(), 0.0), 1, 1e-5);
    }
    std::vector<float> best = found[0].probs;
    std::sort(best.rbegin(), best.rend());
    const double sum = std::accumulate(best.begin(), best.begin() + 4, 0.0);
    double reached = 0;
    std::size_t kept = 0;
    while (reached < 0.5) reached += static_cast<double>(best[kept++]);
    EXPECT_EQ(std::ranges::count_if(found[1].probs, [](float p) { return p > 0; }), 4);
    EXPECT_EQ(std::ranges::count_if(found[2].probs, [](float p) { return p > 0; }),
              static_cast<std::ptrdiff_t>(kept));
    for (std::size_t i = 0; i < best.size(); ++i)
        if (found[1].probs[i] > 0) {
            EXPECT_NEAR(found[1].probs[i], found[0].probs[i] / sum, 1e-5);
        }
}

}  // namespace
}  // namespace draftscope::testing
