#include "app/gui/models/rejections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::node;

TEST(RejectionsModel, SaysAtWhichRankATokenWasPruned) {
    CaptureBuilder capture(testing::vocabulary({"a", "b", "c"}));
    for (int i = 0; i < 3; ++i) {
        RoundRecord round = testing::round_of();
        round.nodes = {node(0, -1, 0, 0, 1, true), node(1, 0, 1, 1, 0.6)};
        round.nodes[0].target_token_id = 2;
        round.nodes[0].target_draft_rank = 4 + i;
        if (i > 0) round.nodes[0].target_draft_logprob = -3.0f;
        capture.step(10 * i, 10 * i + 10, {}, round);
    }
    const RejectionsModel model = build_rejections(capture.snapshot(), 1);
    EXPECT_EQ(model.headline, "3 rounds: 67 % drafted and pruned, 33 % not among the candidates");
    ASSERT_EQ(model.missed.size(), 1u);
    EXPECT_EQ(model.missed[0].pruned, 2);
    EXPECT_THAT(model.missed[0].tip, ::testing::HasSubstr("In 2 the drafter had it, at mean rank 6.5"));
}

TEST(RejectionsModel, NamesCausesAndMissedTokens) {
    CaptureBuilder capture(testing::vocabulary({"a", "b", "c"}));
    for (int i = 0; i < 10; ++i) {
        RoundRecord round = testing::round_of();
        round.nodes = {node(0, -1, 0, 0, 1, true), node(1, 0, 1, 1, 0.6, i == 0)};
        NodeRow& last = round.nodes[i == 0 ? 1 : 0];
        last.target_token_id = 2;
        last.target_covered = i < 4;
        capture.step(10 * i, 10 * i + 10, {}, round);
    }
    const RejectionsModel model = build_rejections(capture.snapshot(), 1);
    EXPECT_EQ(model.empty_text, "");
    EXPECT_EQ(
        model.headline,
        "10 rounds: 60 % outside the active set, 30 % another token drafted, 10 % whole draft accepted");
    ASSERT_EQ(model.missed.size(), 1u);
    EXPECT_EQ(model.missed[0].rounds, 9);
    EXPECT_EQ(model.missed[0].outside_set, 6);
    EXPECT_EQ(model.missed[0].first_round, 1u);
    EXPECT_NE(model.missed[0].text.find('c'), std::string::npos);
    EXPECT_EQ(describe_stop(RejectionGroup::depth, model.summary.by_depth[0], RoundStop::outside_set),
              "at depth 1: 6 of 9 rounds (66.7 %) ended with: outside the active set");
    EXPECT_EQ(model.groups(RejectionGroup::category).size(), 1u);
    EXPECT_NE(build_rejections(Snapshot(), 1).empty_text, "");
}

}  // namespace
}  // namespace draftscope
