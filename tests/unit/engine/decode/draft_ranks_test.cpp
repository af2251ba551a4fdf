#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "tests/support/tiny_decode.h"

// Where the drafter had the target's tokens, also those that were pruned.
namespace draftscope::testing {
namespace {

class DraftRanks : public ::testing::Test, protected TinyDecode {
  protected:
    DraftRanks() : TinyDecode(few_token_options(96)) {}

    void record() {
        fixture_.decode(setting_, {{1, 2, 3}, {4, 5, 6, 7, 8}, {9}}, &sink_);
        steps_ = RecordList::of<StepRecord>(sink_.take());
    }

    DecodeCase setting_;
    RecordList sink_;
    std::vector<StepRecord> steps_;
};

/// Tokens from the root to a node.
std::vector<TokenId> path_to(const RoundRecord& round, int node) {
    std::vector<TokenId> path;
    for (; node > 0; node = round.nodes[node].parent) path.insert(path.begin(), round.nodes[node].token_id);
    return path;
}

TEST_F(DraftRanks, RanksOfTheTargetsTokensAreThoseOfTheCompleteTree) {
    setting_.tree = "depth=3,topk=4,nodes=53";  // nothing is pruned
    record();
    std::map<std::pair<int, std::vector<TokenId>>, NodeRow> complete;  // first rounds
    for (const StepRecord& step : steps_)
        for (const RoundRecord& round : step.rounds)
            for (const NodeRow& node : round.nodes)
                if (round.round.ordinal == 0)
                    complete.emplace(std::pair(round.round.context_length, path_to(round, node.node)), node);
    setting_.tree = "depth=3,topk=4,nodes=8";
    record();
    int drafted = 0, pruned = 0, none = 0, unknown = 0;
    for (const StepRecord& step : steps_)
        for (const RoundRecord& round : step.rounds)
            for (const NodeRow& node : round.nodes) {
                const auto child = std::ranges::find_if(round.nodes, [&](const NodeRow& one) {
                    return one.parent == node.node && one.token_id == node.target_token_id;
                });
                const bool parent = std::ranges::count(round.nodes, node.node, &NodeRow::parent) > 0;
                if (!node.target_draft_rank) {
                    EXPECT_FALSE(parent);
                    EXPECT_FALSE(node.target_draft_logprob);
                    ++unknown;
                    continue;
                }
                if (child != round.nodes.end()) {
                    EXPECT_EQ(node.target_draft_logprob, child->draft_logprob);
                    ++drafted;
                } else if (!node.target_draft_logprob) {
                    EXPECT_EQ(node.target_draft_rank, 4);
                    ++none;
                } else {
                    ++pruned;
                }
                if (!node.target_draft_logprob || round.round.ordinal > 0) continue;
                std::vector<TokenId> path = path_to(round, node.node);
                path.push_back(node.target_token_id);
                const auto found = complete.find({round.round.context_length, path});
                ASSERT_NE(found, complete.end());
                EXPECT_EQ(node.target_draft_logprob, found->second.draft_logprob);
                int likelier = 0;
                path.pop_back();
                for (const auto& [key, other] : complete)
                    if (key.first == round.round.context_length && key.second.size() == path.size() + 1 &&
                        std::ranges::equal(path, std::span(key.second).first(path.size())))
                        likelier += other.draft_logprob > *node.target_draft_logprob ? 1 : 0;
                EXPECT_EQ(node.target_draft_rank, likelier);
            }
    EXPECT_GT(drafted, 0);
    EXPECT_GT(pruned, 0);
    EXPECT_GT(none, 0);
    EXPECT_GT(unknown, 0);
}

TEST_F(DraftRanks, RanksThatTheDrafterDoesNotHaveAreUnknown) {
    for (const auto& [drafter, shape, verify] :
         {std::tuple{"ngram", "chain=4", "match"}, std::tuple{"eagle2", "choices:mc_sim_7b_63", "match"},
          std::tuple{"eagle2", "depth=3,topk=4,nodes=12", "pq"}}) {
        setting_.drafter = drafter;
        setting_.tree = shape;
        setting_.verify = verify;
        setting_.temperature = verify == std::string("pq") ? 1 : 0;
        record();
        for (const StepRecord& step : steps_)
            for (const RoundRecord& round : step.rounds)
                for (const NodeRow& node : round.nodes) {
                    EXPECT_FALSE(node.target_draft_rank) << drafter << " " << shape << " " << verify;
                    EXPECT_FALSE(node.target_draft_logprob);
                }
    }
}

}  // namespace
}  // namespace draftscope::testing
