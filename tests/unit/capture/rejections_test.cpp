#include "capture/rejections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/run_setting.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::node;
using testing::round_of;

/// A round whose last accepted node is `nodes[last]`, where the target emits `token`.
RoundRecord round_with(std::vector<NodeRow> nodes, std::size_t last, TokenId token,
                       std::optional<bool> covered = true) {
    RoundRecord round = round_of();
    nodes[last].target_token_id = token;
    nodes[last].target_covered = covered;
    nodes[last].target_token_prob = 0.5f;
    round.nodes = std::move(nodes);
    return round;
}

/// A root with two children, the first of which has a child of its own.
std::vector<NodeRow> small_tree(int accepted) {
    return {node(0, -1, 0, 1, 1, true), node(1, 0, 1, 2, 0.6, accepted >= 1), node(2, 0, 1, 3, 0.2),
            node(3, 1, 2, 4, 0.5, accepted >= 2)};
}

TEST(RoundEndings, EveryCause) {
    CaptureBuilder capture;
    RoundRecord cut = round_with(small_tree(1), 1, 9);
    cut.round.clipped = true;
    std::vector<NodeRow> second = small_tree(0);
    second[2].accepted = true;
    TimeNs at = 0;
    for (const RoundRecord& round :
         {round_with(small_tree(0), 0, 9, false), round_with(small_tree(1), 1, 9),
          round_with(small_tree(1), 1, 9, std::nullopt), round_with(second, 2, 9),
          round_with(small_tree(2), 3, 9), round_with({node(0, -1, 0, 1, 1, true)}, 0, 9), cut,
          round_with(small_tree(1), 1, no_token)}) {
        capture.step(at, at + 10, {}, round);
        at += 10;
    }
    const Snapshot snapshot = capture.snapshot();
    std::vector<RoundStop> stops;
    std::vector<int> depths;
    for (const RoundEnding& one : round_endings(snapshot, 1)) {
        stops.push_back(one.stop);
        depths.push_back(one.depth);
        EXPECT_EQ(one.token_id, 9);
    }
    using enum RoundStop;
    EXPECT_THAT(stops, ::testing::ElementsAre(outside_set, other_drafted, other_drafted, not_expanded,
                                              all_accepted, nothing_drafted, text_ended));
    EXPECT_THAT(depths, ::testing::ElementsAre(1, 2, 2, 2, 3, 1, 2));

    const RejectionSummary sum = summarise_rejections(snapshot, 1);
    EXPECT_EQ(sum.all.all(), 7);
    EXPECT_EQ(sum.left_out, 1u) << "the round whose target token is not known";
    ASSERT_EQ(sum.by_depth.size(), 3u);
    EXPECT_EQ(sum.by_depth[0].label, "1");
    EXPECT_EQ(sum.by_depth[0].rounds, (std::array<std::int64_t, round_stops>{1, 0, 0, 0, 0, 0, 1, 0}));
    EXPECT_DOUBLE_EQ(sum.by_depth[1].share(other_drafted), 0.5);
    ASSERT_EQ(sum.missed.size(), 1u);
    EXPECT_EQ(sum.missed[0].rounds, 3);
    EXPECT_EQ(sum.missed[0].outside_set, 1);
    EXPECT_EQ(sum.missed[0].first_round, 0u);
}

TEST(RoundEndings, TellPrunedDraftsFromTokensThatWereNoCandidates) {
    CaptureBuilder capture;
    std::vector<NodeRow> pruned = small_tree(1), none = small_tree(1), outside = small_tree(1);
    pruned[1].target_draft_rank = 7;
    pruned[1].target_draft_logprob = -3.5f;
    none[1].target_draft_rank = outside[1].target_draft_rank = 10;
    capture.step(0, 10, {}, round_with(pruned, 1, 9));
    capture.step(10, 20, {}, round_with(none, 1, 9));
    capture.step(20, 30, {}, round_with(outside, 1, 9, false));
    pruned[1].target_draft_rank = 4;
    capture.step(30, 40, {}, round_with(pruned, 1, 9));
    std::vector<NodeRow> all_pruned = small_tree(0);  // of the candidates after node 2, while node 3 is kept
    all_pruned[2].accepted = true;
    all_pruned[2].target_draft_rank = 0;
    all_pruned[2].target_draft_logprob = -1.0f;
    capture.step(40, 50, {}, round_with(all_pruned, 2, 8));
    const std::vector<RoundEnding> found = round_endings(capture.snapshot(), 1);
    ASSERT_EQ(found.size(), 5u);
    EXPECT_EQ(found[4].stop, RoundStop::pruned);
    EXPECT_EQ(found[0].stop, RoundStop::pruned);
    EXPECT_EQ(found[0].draft_rank, 7);
    EXPECT_EQ(found[1].stop, RoundStop::no_candidate);
    EXPECT_EQ(found[2].stop, RoundStop::outside_set);
    for (const RoundEnding& one : found) EXPECT_TRUE(is_rejection(one.stop));
    const RejectionSummary sum = summarise_rejections(capture.snapshot(), 1);
    ASSERT_EQ(sum.missed.size(), 2u);
    EXPECT_EQ(sum.missed[0].rounds, 4);
    EXPECT_EQ(sum.missed[0].outside_set, 1);
    EXPECT_EQ(sum.missed[0].pruned, 2);
    EXPECT_EQ(sum.missed[0].rank_sum, 11);
}

TEST(RoundEndings, CandidatesOfAnImportedRoundAreNoDrafts) {
    CaptureBuilder capture;
    RunRow run;
    run.acceptance = std::string(imported_acceptance);
    const RowId id = capture.run(run);
    RoundRecord round = round_with(small_tree(1), 1, 9);
    round.round.draft_tokens = 1;
    capture.step(0, 10, {}, round);
    const std::vector<RoundEnding> found = round_endings(capture.snapshot(), id);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].stop, RoundStop::all_accepted);
}

TEST(RoundEndings, GroupsByCategoryAndPosition) {
    CaptureBuilder capture;
    capture.prompt("code");
    RoundRecord round = round_with(small_tree(0), 0, 9);
    round.round.context_length = 200;
    capture.step(0, 10, {}, round);
    capture.prompt("chat");
    capture.step(10, 20, {}, round_with(small_tree(2), 3, 9));
    const RejectionSummary sum = summarise_rejections(capture.snapshot(), 1);
    ASSERT_EQ(sum.by_category.size(), 2u);
    EXPECT_EQ(sum.by_category[0].label, "chat");
    EXPECT_EQ(sum.by_category[1].rounds[static_cast<std::size_t>(RoundStop::other_drafted)], 1);
    EXPECT_EQ(sum.by_position.size(), 2u);
}

}  // namespace
}  // namespace draftscope
