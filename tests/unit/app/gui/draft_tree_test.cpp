#include "app/gui/models/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "capture/token_text.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::node;
using testing::vocabulary;

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
    round.round.draft_tokens = 4;
    round.round.accepted = 1;
    round.round.committed = 2;
    return round;
}

DraftTreeModel make_model(const RoundRecord& round) {
    CaptureBuilder built(vocabulary(words));
    built.step(0, 100, {}, round);
    return build_draft_tree(built.snapshot(), 0);
}

const TreeNode& target_node(const DraftTreeModel& model) {
    const auto found = std::find_if(model.nodes.begin(), model.nodes.end(),
                                    [](const TreeNode& n) { return n.kind == TreeNodeKind::target; });
    EXPECT_NE(found, model.nodes.end());
    return *found;
}

std::vector<TreeBox> make_boxes(const std::vector<int>& parents) {
    std::vector<TreeBox> boxes;
    for (const int parent : parents)
        boxes.push_back({parent, parent < 0 ? 0 : boxes[parent].depth + 1, 1, 1});
    return boxes;
}

TEST(DraftTreeModel, ComparesTwoTreesByTheirTokens) {
    DraftTreeModel model = make_model(small_round());
    RoundRecord other = small_round();
    other.nodes[1].token_id = 5;  // instead of " a"
    other.nodes[4].token_id = 4;  // instead of " sat", with a child of its own
    other.nodes.push_back(node(5, 4, 3, 2, 0.1));
    const std::size_t before = model.nodes.size();
    const TreeDifference found = compare_trees(model, make_model(other));
    EXPECT_EQ(found.kept, 2) << "\" the\" and its first child";
    EXPECT_EQ(found.gained, 2);
    EXPECT_EQ(found.lost, 3);
    EXPECT_EQ(to_text(found), "1 accepted instead of 1; 2 nodes kept, 2 gained, 3 lost");
    ASSERT_EQ(model.nodes.size(), before + 3);
    EXPECT_EQ(model.nodes.back().kind, TreeNodeKind::target) << "the target's token stays last";
    for (const TreeNode& one : model.nodes)
        if (one.kind == TreeNodeKind::lost) {
            EXPECT_EQ(one.depth, model.nodes[static_cast<std::size_t>(one.parent)].depth + 1);
            EXPECT_FALSE(one.gained);
        }
    DraftTreeModel same = make_model(small_round());
    EXPECT_EQ(compare_trees(same, make_model(small_round())).lost, 0);
    EXPECT_EQ(same.nodes.size(), before);
}

TEST(DraftTreeLayout, PlacesParentsBetweenTheirChildren) {
    // 0 -> {1, 2}; 1 -> {3, 4}; 2 -> {5}
    const std::vector<float> y = layout_tree(make_boxes({-1, 0, 0, 1, 1, 2}));
    EXPECT_THAT(y, ElementsAre(1.75f, 1.0f, 2.5f, 0.5f, 1.5f, 2.5f));
}

TEST(DraftTreeLayout, PacksShallowBranchesUnderDeepOnes) {
    // 0 -> {1, 2, 3}; only 1 has descendants, and its chain does not push the leaves apart
    const std::vector<float> y = layout_tree(make_boxes({-1, 0, 0, 0, 1, 4}));
    EXPECT_THAT(y, ElementsAre(1.5f, 0.5f, 1.5f, 2.5f, 0.5f, 0.5f));
}

TEST(DraftTreeLayout, TallBoxesPushTheirNeighboursAway) {
    std::vector<TreeBox> boxes = make_boxes({-1, 0, 0, 0});
    boxes[2].rows = 3;
    EXPECT_THAT(layout_tree(boxes), ElementsAre(2.5f, 0.5f, 2.5f, 4.5f));
}

RC_GTEST_PROP(DraftTreeLayout, NodesKeepTheirDistanceAndEdgesDoNotCross, ()) {
    const int n = *rc::gen::inRange(1, 200);
    std::vector<int> parents = {-1};
    for (int i = 1; i < n; ++i) parents.push_back(*rc::gen::inRange(std::max(0, i - 12), i));
    const std::vector<TreeBox> boxes = make_boxes(parents);
    const std::vector<float> y = layout_tree(boxes);
    std::map<int, std::vector<int>> columns;
    for (int i = 0; i < n; ++i) {
        RC_ASSERT(y[i] >= 0.5f - 1e-3f);
        columns[boxes[i].depth].push_back(i);
    }
    for (auto& [depth, nodes] : columns) {
        const auto node_y = [&](int i) { return y[i]; };
        std::sort(nodes.begin(), nodes.end(), [&](int a, int b) { return node_y(a) < node_y(b); });
        for (std::size_t k = 1; k < nodes.size(); ++k) {
            RC_ASSERT(node_y(nodes[k]) - node_y(nodes[k - 1]) >= 0.999f);
            if (depth == 0) continue;
            // edges between two columns cross if and only if the parents have the opposite order
            const int a = parents[nodes[k - 1]];
            const int b = parents[nodes[k]];
            RC_ASSERT(a == b || node_y(a) < node_y(b));
        }
    }
}

/// Returns a tree of `n` nodes whose first children are accepted for `accepted` levels.
DraftTreeModel wide_tree(int n, int accepted) {
    RoundRecord round;
    round.nodes = {node(0, -1, 0, 5, 1.0)};
    for (int i = 1; i < n; ++i) {
        const int parent = *rc::gen::inRange(std::max(0, i - 9), i);
        round.nodes.push_back(node(i, parent, round.nodes[parent].depth + 1, i % 6, 0.9 / i));
    }
    std::size_t last = 0;
    for (int level = 0; level < accepted; ++level)
        for (std::size_t i = last + 1; i < round.nodes.size(); ++i)
            if (round.nodes[i].parent == static_cast<int>(last)) {
                round.nodes[i].accepted = true;
                last = i;
                break;
            }
    round.nodes[last].target_token_id = 1;
    return make_model(round);
}

RC_GTEST_PROP(DraftTreeLayout, TargetTokenCoversNoDraftNodeOrEdge, ()) {
    DraftTreeModel model = wide_tree(*rc::gen::inRange(2, 120), *rc::gen::inRange(0, 6));
    arrange_tree(model, *rc::gen::element(1.0f, 2.5f, 8.0f));
    const TreeNode& target = target_node(model);
    const float top = target.y - target.rows / 2, bottom = target.y + target.rows / 2;
    const auto clear = [&](float low, float high) { return high <= top + 1e-3f || low >= bottom - 1e-3f; };
    for (const TreeNode& drafted : model.nodes) {
        if (&drafted == &target || drafted.depth < target.depth || drafted.depth > target.depth + 1) continue;
        RC_ASSERT(clear(drafted.y - drafted.rows / 2, drafted.y + drafted.rows / 2));
        if (drafted.depth == target.depth) continue;  // its edge starts in the target's column
        const TreeNode& from = model.nodes[drafted.parent];
        RC_ASSERT(clear(std::min(from.y, drafted.y), std::max(from.y, drafted.y)));
    }
    for (const TreeNode& on_path : model.nodes) {
        if (!is_on_path(on_path)) continue;
        for (const TreeNode& other : model.nodes)
            if (&other != &on_path && other.depth == on_path.depth)
                RC_ASSERT(std::abs(other.y - on_path.y) >= (other.rows + on_path.rows) / 2 - 1e-3f);
    }
}

RC_GTEST_PROP(DraftTreeLayout, GrowingTreeNodesDoNotMove, ()) {
    std::vector<TreeBox> boxes = {{-1, 0, 1, 1}};
    std::vector<float> before;
    std::size_t level_start = 0;
    for (int depth = 1; depth <= 6; ++depth) {
        const std::size_t level_end = boxes.size();
        for (std::size_t parent = level_start; parent < level_end; ++parent)
            for (int child = *rc::gen::inRange(0, 5); child > 0; --child)
                boxes.push_back({static_cast<int>(parent), depth, 1, 1});
        level_start = level_end;
        const std::vector<float> y = layout_growing_tree(boxes);
        for (std::size_t i = 0; i < before.size(); ++i) RC_ASSERT(y[i] == before[i]);
        for (std::size_t i = level_start + 1; i < y.size(); ++i) RC_ASSERT(y[i] >= y[i - 1] + 1);
        for (std::size_t i = level_start; i < y.size(); ++i) RC_ASSERT(y[i] >= y[boxes[i].parent]);
        before = y;
    }
}

TEST(DraftTree, RoundInFlightReservesColumnsForItsMaxDepth) {
    CaptureBuilder built(vocabulary(words));
    LiveRound live;
    live.active = true;
    live.levels = 5;
    live.partial = small_round();
    live.partial.round.run_id = 1;
    for (NodeRow& n : live.partial.nodes) {
        n.accepted = false;
        n.target_token_id = no_token;
    }
    built.add(live);
    const DraftTreeModel model = build_live_draft_tree(built.snapshot());
    EXPECT_TRUE(model.growing);
    EXPECT_EQ(model.max_depth, 2);
    EXPECT_EQ(model.reserved_depth, 5);
    EXPECT_GE(model.reserved_rows, 1);
}

TEST(DraftTree, ExplainsWhyTheDraftWasRejected) {
    const DraftTreeModel model = make_model(small_round());
    EXPECT_EQ(model.headline,
              "rejected at depth 2: the target chose \" a\" (p 0.41, rank 2); the drafter's top token was \" "
              "cat\" (p 0.70)");
    EXPECT_EQ(model.drafted, 4);
    EXPECT_EQ(model.max_depth, 2);
}

TEST(DraftTree, ShowsTheTargetsTokenAfterTheAcceptedPath) {
    const DraftTreeModel model = make_model(small_round());
    const TreeNode& target = target_node(model);
    EXPECT_EQ(target.text, "\" a\"");
    EXPECT_EQ(target.depth, 2);
    EXPECT_EQ(target.covered, true);
    EXPECT_NEAR(target.target_probability.value_or(0), 0.41, 1e-6);
    EXPECT_EQ(target.target_rank, 1);
    const TreeNode& last = model.nodes[target.parent];
    ASSERT_EQ(last.top.size(), 2u);
    EXPECT_EQ(last.top[0].text, "\"\\n\"");
    // The accepted path is the topmost.
    for (const TreeNode& n : model.nodes)
        if (n.depth == 2 && n.kind != TreeNodeKind::target) {
            EXPECT_LT(target.y, n.y);
        }
}

TEST(DraftTree, NamesTokensOutsideTheHead) {
    RoundRecord round = small_round();
    round.nodes[2].target_covered = false;
    const DraftTreeModel model = make_model(round);
    EXPECT_EQ(target_node(model).covered, false);
    EXPECT_THAT(model.headline,
                HasSubstr("\" a\" (p 0.41, rank 2), which is not in the head's active set; the drafter's"));
}

TEST(DraftTree, DistinguishesFullAcceptanceFromRejection) {
    RoundRecord round = small_round();
    round.nodes[3].accepted = true;
    round.nodes[3].target_token_id = 3;
    round.nodes[3].target_token_prob = 0.9f;
    EXPECT_EQ(make_model(round).headline, "fully accepted (depth 2); bonus token \" sat\" (p 0.90)");
}

TEST(DraftTree, DraftCutOffAtTheEndOfOutputIsNotRejected) {
    RoundRecord round = small_round();
    round.nodes[2].target_token_id = 2;  // drafted as node 3
    round.round.committed = 2;
    round.round.clipped = true;
    EXPECT_EQ(make_model(round).headline, "accepted to depth 1 of 2; output ended, 2 committed");
}

TEST(DraftTree, WorksWithoutADraft) {
    RoundRecord round;
    round.nodes = {node(0, -1, 0, 5, 1.0)};
    round.nodes[0].target_token_id = 0;
    EXPECT_EQ(make_model(round).headline, "nothing was drafted: the target decoded \" the\"");
}

TEST(DraftTree, ExplainsAnEmptyTree) {
    EXPECT_THAT(build_draft_tree(Snapshot(), 0).empty_text, HasSubstr("No rounds yet"));
    CaptureBuilder built(vocabulary(words));
    built.step(0, 10, {}, {});
    EXPECT_THAT(build_draft_tree(built.snapshot(), 7).empty_text, HasSubstr("Select a round"));
    EXPECT_THAT(build_draft_tree(built.snapshot(), 0).empty_text, HasSubstr("no stored draft tree"));
}

TEST(DraftTree, ShowsARoundInFlightAsNotVerified) {
    CaptureBuilder built(vocabulary(words));
    LiveRound live;
    live.active = true;
    live.partial = small_round();
    live.partial.round.run_id = 1;
    for (NodeRow& n : live.partial.nodes) {
        n.accepted = false;
        n.target_token_id = no_token;
    }
    built.add(live);
    const DraftTreeModel model = build_live_draft_tree(built.snapshot());
    EXPECT_TRUE(model.live);
    EXPECT_EQ(model.headline, "round in flight: 4 drafted to depth 2, not yet verified");
    for (std::size_t i = 1; i < model.nodes.size(); ++i)
        EXPECT_EQ(model.nodes[i].kind, TreeNodeKind::pending);
}

TEST(DraftTree, MarksTheNodesThatAreDraftedFromNext) {
    CaptureBuilder built(vocabulary(words));
    built.run({});
    LiveRound live;
    live.active = true;
    live.partial = small_round();
    live.partial.round.run_id = 1;
    for (NodeRow& n : live.partial.nodes) n.accepted = false, n.target_token_id = no_token;
    live.beam = {1, 4};
    built.add(live);
    const DraftTreeModel model = build_live_draft_tree(built.snapshot());
    EXPECT_THAT(model.headline, HasSubstr("not yet verified; the marked ones are drafted from next"));
    for (std::size_t i = 0; i < model.nodes.size(); ++i) {
        const TreeNode& one = model.nodes[i];
        EXPECT_EQ(one.beam, one.token_id == 1 || one.token_id == 3) << one.text;
        if (one.token_id != 3) continue;
        EXPECT_THAT(describe_node(model, i)[1], HasSubstr("score"));
        EXPECT_THAT(describe_node(model, i)[1], HasSubstr("in the beam: drafted from next"));
    }
}

TEST(DraftTree, SaysWhereTheDrafterHadTheTargetsToken) {
    RoundRecord round = small_round();
    round.nodes[2].target_draft_rank = 7;
    round.nodes[2].target_draft_logprob = std::log(0.03f);
    DraftTreeModel model = make_model(round);
    EXPECT_THAT(model.headline,
                HasSubstr(", drafter's rank 8, p 0.030, pruned; the drafter's top token was"));
    const std::size_t last = model.nodes.size() - 1;
    EXPECT_THAT(describe_node(model, last)[1],
                HasSubstr("in the head's active set, drafter's rank 8, p 0.030, pruned"));
    for (std::size_t i = 0; i < last; ++i)
        EXPECT_EQ(describe_node(model, i)[1].ends_with("(drafter's rank 8, p 0.030, pruned)"),
                  model.nodes[i].kind == TreeNodeKind::accepted);
    round.nodes[2].target_draft_rank = 10;
    round.nodes[2].target_draft_logprob.reset();
    model = make_model(round);
    EXPECT_THAT(model.headline, HasSubstr(", not among the drafter's first 10; the drafter's top token was"));
    RoundRecord all_pruned = round;
    all_pruned.nodes.resize(3);
    all_pruned.round.draft_tokens = 2;
    EXPECT_THAT(make_model(all_pruned).headline, HasSubstr("bonus token \" a\" (p 0.41, rank 2), not among"));
    round.nodes[2].target_token_id = 3;  // as node 4
    round.nodes[2].target_draft_rank = 1;
    round.nodes[2].target_draft_logprob = std::log(0.2f);
    model = make_model(round);
    EXPECT_EQ(model.nodes[1].in_draft, "drafter's rank 2, p 0.200");
}

TEST(DraftTree, ToleratesNodesWithoutParents) {
    RoundRecord round = small_round();
    round.nodes.push_back(node(9, 77, 3, 1, 0.5));
    const DraftTreeModel model = make_model(round);
    EXPECT_EQ(model.nodes.size(), 7u);
    EXPECT_EQ(std::ranges::count_if(model.nodes, [](const TreeNode& node) { return node.parent >= 0; }), 5);
}

TEST(DraftTree, LabelsLeaveOutQuotesAndMarkSpaces) {
    EXPECT_EQ(box_label("\" a b\""),
              "\xC2\xB7"
              "a\xC2\xB7"
              "b");
    EXPECT_EQ(box_label("#12"), "#12");
    EXPECT_EQ(box_label("<F0 9F>"), "<F0 9F>");
    EXPECT_EQ(box_label("\" <F0 9F> <b\""), "\xC2\xB7<F0 9F>\xC2\xB7<b");
}

TEST(DraftTree, ShowsInvalidUtf8AsHexBytes) {
    CaptureBuilder built(vocabulary({"\xF0\x9F", "\x99", " \xE2\x82", "", "\xF0\x9F\x99\x82", " on"}));
    built.step(0, 100, {}, small_round());
    DraftTreeModel model = build_draft_tree(built.snapshot(), 0);
    EXPECT_EQ(model.headline,
              "rejected at depth 2: the target chose <99> (p 0.41, rank 2); the drafter's top token was "
              "\" <E2 82>\" (p 0.70)");
    EXPECT_THAT(describe_node(model, 1)[0], ::testing::StartsWith("<F0 9F>  id 0"));
    EXPECT_EQ(token_label(built.snapshot(), &built.snapshot().runs[0], 3), "#3") << "no bytes: its id";
    EXPECT_EQ(model.nodes[target_node(model).parent].top[0].text, "\"\xF0\x9F\x99\x82\"");
    replace_missing_glyphs(model, [](char32_t) { return false; });
    EXPECT_EQ(model.nodes[target_node(model).parent].top[0].text, "\"<U+1F642>\"");
}

}  // namespace
}  // namespace draftscope
