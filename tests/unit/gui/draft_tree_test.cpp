#include "app/gui/models/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "tests/unit/gui/hand_built.h"

namespace draftscope {
namespace {

using test::HandBuilt;
using test::node;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> words = {" the", " a", " cat", " sat", "\n", " on"};

/// root -> { " the" (p .6, accepted) -> { " cat" .7, " sat" .2 }, " a" .3 }
RoundRecord small_round() {
    RoundRecord round;
    NodeRow root = node(0, -1, 0, 5, 1.0);
    NodeRow the = node(2, 0, 1, 0, 0.6, true);
    the.target_token_id = 1;
    the.target_token_prob = 0.41f;
    round.nodes = {root, node(1, 0, 1, 1, 0.3), the, node(3, 2, 2, 2, 0.7), node(4, 2, 2, 3, 0.2)};
    round.tops = {{0, 2, 1, 1, 0.41f}, {0, 2, 0, 4, 0.45f}};
    round.round.drafted = 4;
    round.round.accepted = 1;
    round.round.committed = 2;
    return round;
}

DraftTreeModel model_of(const RoundRecord& round) {
    HandBuilt built(words);
    built.prompt(1);
    built.step(round, {}, 0, 100);
    return build_draft_tree(built.snapshot(), 0);
}

const TreeNode& target_of(const DraftTreeModel& model) {
    const auto found = std::find_if(model.nodes.begin(), model.nodes.end(),
                                    [](const TreeNode& n) { return n.kind == TreeNodeKind::target; });
    EXPECT_NE(found, model.nodes.end());
    return *found;
}

TEST(DraftTreeLayout, PlacesParentsBetweenTheirChildren) {
    // 0 -> {1, 2}; 1 -> {3, 4}; 2 -> {5}
    const std::vector<float> y = layout_tree({-1, 0, 0, 1, 1, 2}, {0, 1, 1, 2, 2, 2});
    EXPECT_THAT(y, ElementsAre(1.25f, 0.5f, 2.0f, 0.0f, 1.0f, 2.0f));
}

TEST(DraftTreeLayout, TucksShallowBranchesUnderDeepOnes) {
    // 0 -> {1, 2, 3}; only 1 goes on, and its chain does not push the leaves apart
    const std::vector<float> y = layout_tree({-1, 0, 0, 0, 1, 4}, {0, 1, 1, 1, 2, 3});
    EXPECT_THAT(y, ElementsAre(1.0f, 0.0f, 1.0f, 2.0f, 0.0f, 0.0f));
}

RC_GTEST_PROP(DraftTreeLayout, NodesKeepTheirDistanceAndEdgesDoNotCross, ()) {
    const int n = *rc::gen::inRange(1, 200);
    std::vector<int> parents = {-1}, depths = {0};
    for (int i = 1; i < n; ++i) {
        parents.push_back(*rc::gen::inRange(std::max(0, i - 12), i));
        depths.push_back(depths[static_cast<std::size_t>(parents.back())] + 1);
    }
    const std::vector<float> y = layout_tree(parents, depths);
    std::map<int, std::vector<int>> columns;
    for (int i = 0; i < n; ++i) {
        RC_ASSERT(y[static_cast<std::size_t>(i)] >= -1e-3f);
        columns[depths[static_cast<std::size_t>(i)]].push_back(i);
    }
    for (auto& [depth, nodes] : columns) {
        const auto y_of = [&](int i) { return y[static_cast<std::size_t>(i)]; };
        std::sort(nodes.begin(), nodes.end(), [&](int a, int b) { return y_of(a) < y_of(b); });
        for (std::size_t k = 1; k < nodes.size(); ++k) {
            RC_ASSERT(y_of(nodes[k]) - y_of(nodes[k - 1]) >= 0.999f);
            if (depth == 0) continue;
            // edges between two columns cross exactly when the order of the parents is the other one
            const int a = parents[static_cast<std::size_t>(nodes[k - 1])];
            const int b = parents[static_cast<std::size_t>(nodes[k])];
            RC_ASSERT(a == b || y_of(a) < y_of(b));
        }
    }
}

TEST(DraftTree, SaysWhyTheDraftWasRejected) {
    const DraftTreeModel model = model_of(small_round());
    EXPECT_EQ(
        model.headline,
        "rejected at depth 2: the target wants \" a\" (p 0.41, rank 2); the drafter's best was \" cat\" "
        "(p 0.70)");
    EXPECT_EQ(model.drafted, 4);
    EXPECT_EQ(model.accepted, 1);
    EXPECT_EQ(model.max_depth, 2);
}

TEST(DraftTree, ShowsTheTargetsTokenAfterTheAcceptedPath) {
    const DraftTreeModel model = model_of(small_round());
    const TreeNode& target = target_of(model);
    EXPECT_EQ(target.text, "\" a\"");
    EXPECT_EQ(target.depth, 2);
    EXPECT_TRUE(target.covered);
    EXPECT_NEAR(target.target_probability.value_or(0), 0.41, 1e-6);
    EXPECT_EQ(target.target_rank, 1);
    const TreeNode& last = model.nodes[static_cast<std::size_t>(target.parent)];
    EXPECT_TRUE(last.last_accepted);
    ASSERT_EQ(last.top.size(), 2u);
    EXPECT_EQ(last.top[0].text, "\"\\n\"");
    // The way the text took is the upper one.
    for (const TreeNode& n : model.nodes)
        if (n.depth == 2 && n.kind != TreeNodeKind::target) {
            EXPECT_LT(target.y, n.y);
        }
}

TEST(DraftTree, NamesTokensOutsideTheHead) {
    RoundRecord round = small_round();
    round.nodes[2].target_covered = false;
    const DraftTreeModel model = model_of(round);
    EXPECT_FALSE(target_of(model).covered);
    EXPECT_THAT(model.headline,
                HasSubstr("\" a\" (p 0.41, rank 2), which is not in the head's active set; the drafter's"));
}

TEST(DraftTree, TellsFullAcceptanceFromRejection) {
    RoundRecord round = small_round();
    round.nodes[3].accepted = true;
    round.nodes[3].target_token_id = 3;
    round.nodes[3].target_token_prob = 0.9f;
    EXPECT_EQ(model_of(round).headline,
              "all 2 levels accepted; the target adds \" sat\" (p 0.90) of its own");
}

TEST(DraftTree, WorksWithoutADraft) {
    RoundRecord round;
    round.nodes = {node(0, -1, 0, 5, 1.0)};
    round.nodes[0].target_token_id = 0;
    EXPECT_EQ(model_of(round).headline, "nothing was drafted: the target decoded \" the\"");
}

TEST(DraftTree, ExplainsItsAbsence) {
    EXPECT_THAT(build_draft_tree(Snapshot(), 0).empty_text, HasSubstr("No rounds yet"));
    HandBuilt built(words);
    built.prompt(1);
    built.step({}, {}, 0, 10);
    EXPECT_THAT(build_draft_tree(built.snapshot(), 7).empty_text, HasSubstr("Select a round"));
    EXPECT_THAT(build_draft_tree(built.snapshot(), 0).empty_text, HasSubstr("no stored draft tree"));
}

TEST(DraftTree, ShowsARoundInFlightAsNotVerified) {
    HandBuilt built(words);
    LiveRound live;
    live.active = true;
    live.partial = small_round();
    live.partial.round.run_id = 1;
    for (NodeRow& n : live.partial.nodes) {
        n.accepted = false;
        n.target_token_id = no_token;
    }
    built.capture().apply(live);
    const DraftTreeModel model = build_live_draft_tree(built.snapshot());
    EXPECT_TRUE(model.live);
    EXPECT_EQ(model.headline, "round in flight: 4 drafted down to depth 2, not verified yet");
    for (std::size_t i = 1; i < model.nodes.size(); ++i)
        EXPECT_EQ(model.nodes[i].kind, TreeNodeKind::pending);
}

TEST(DraftTree, SurvivesNodesWithoutTheirParent) {
    RoundRecord round = small_round();
    round.nodes.push_back(node(9, 77, 3, 1, 0.5));
    const DraftTreeModel model = model_of(round);
    EXPECT_EQ(model.nodes.size(), 7u);
    EXPECT_EQ(model.edges.size(), 5u);
}

TEST(DraftTree, QuotesTokensAsPeopleReadThem) {
    EXPECT_EQ(quote_token(" a\n\tb"), "\" a\\n\\tb\"");
    EXPECT_EQ(quote_token(std::string("\x01", 1)), "\"\\x01\"");
    EXPECT_EQ(quote_token("abcdefghijklmnopqrstuvwxyz"), "\"abcdefghijklmnopqrstuvwx...\"");
    EXPECT_EQ(box_label("\" a b\""),
              "\xC2\xB7"
              "a\xC2\xB7"
              "b");
    EXPECT_EQ(box_label("#12"), "#12");
    EXPECT_EQ(quote_token("\xC3\xA9"), "\"\xC3\xA9\"");
}

}  // namespace
}  // namespace draftscope
