#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "engine/tree/draft_tree.h"
#include "tests/support/beam_expansion.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

constexpr TokenId root = 100, A = 1, B = 2, C = 3, D = 4, E = 5, F = 6, G = 7, H = 8, K = 9, L = 10;

std::vector<float> logs(std::initializer_list<double> probabilities) {
    std::vector<float> out;
    for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
    return out;
}

/// The worked example: k = 2, depth = 2, six nodes; root -> A .6, B .28; A -> C .5, D .4; B -> E .9, F .05;
/// AC -> G .7, H .2; BE -> K .8, L .1.
BeamExpansion worked_example() {
    BeamExpansion beam(root, TreeSpec{2, 2, 6});
    beam.start(std::vector<TokenId>{A, B}, logs({.6, .28}));
    beam.extend(std::vector<TokenId>{C, D, E, F}, logs({.5, .4, .9, .05}), std::vector<int>{2, 2});
    return beam;
}

TEST(BeamExpansion, SecondBeamOfTheWorkedExampleIsFlats2And4) {
    const BeamExpansion beam = worked_example();
    ASSERT_EQ(beam.beam().size(), 2u);
    EXPECT_EQ(beam.beam()[0].flat, 2);
    EXPECT_EQ(beam.beam()[0].token, C);
    EXPECT_EQ(beam.beam()[0].parent_row, 0);
    EXPECT_NEAR(std::exp(beam.beam()[0].score), .30, 1e-6);
    EXPECT_EQ(beam.beam()[1].flat, 4);
    EXPECT_EQ(beam.beam()[1].parent_row, 1);
    EXPECT_NEAR(std::exp(beam.beam()[1].score), .252, 1e-6);
    EXPECT_EQ(beam.ancestor_rows(0), std::vector<int>{0});
    EXPECT_EQ(beam.ancestor_rows(1), std::vector<int>{1});
}

TEST(BeamExpansion, TreeOfTheWorkedExample) {
    BeamExpansion beam = worked_example();
    beam.extend(std::vector<TokenId>{G, H, K, L}, logs({.7, .2, .8, .1}), std::vector<int>{2, 2});
    EXPECT_EQ(beam.candidates(), 10);
    DraftTree tree = beam.rerank();
    ASSERT_TRUE(tree.finish().ok());
    EXPECT_EQ(tree.tokens, (std::vector<TokenId>{root, A, B, C, D, E}));
    EXPECT_EQ(tree.parents, (std::vector<int>{-1, 0, 0, 1, 1, 2}));
    EXPECT_EQ(tree.depths, (std::vector<int>{0, 1, 1, 2, 2, 2}));
    const std::vector<std::uint64_t> masks = {0b1, 0b11, 0b101, 0b1011, 0b10011, 0b100101};
    for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.mask.row(i)[0], masks[i]);
    EXPECT_NEAR(std::exp(tree.cum_logprobs[3]), .30, 1e-6);
    EXPECT_EQ(tree.max_depth(), 2);
}

/// The same example in the order of FR-Spec's engine.
TEST(BeamExpansion, OrdersByDescendingScore) {
    BeamExpansion beam(root, TreeSpec{2, 2, 6, TreeOrder::fr});
    beam.start(std::vector<TokenId>{A, B}, logs({.6, .28}));
    beam.extend(std::vector<TokenId>{C, D, E, F}, logs({.5, .4, .9, .05}), std::vector<int>{2, 2});
    beam.extend(std::vector<TokenId>{G, H, K, L}, logs({.7, .2, .8, .1}), std::vector<int>{2, 2});
    DraftTree tree = beam.rerank();
    ASSERT_TRUE(tree.finish().ok());
    EXPECT_EQ(tree.tokens, (std::vector<TokenId>{root, A, C, B, E, D}));
    EXPECT_EQ(tree.parents, (std::vector<int>{-1, 0, 1, 0, 3, 1}));
}

/// Expands Medusa's mc_sim_7b_63 over candidates whose tokens encode their path, and compares with the
/// published paths.
TEST(BeamExpansion, StaticTreeHasPathsOfItsChoices) {
    for (const PublishedChoices& published : published_choices()) {
        const TreeSpec spec = parse_tree_spec("choices:" + std::string(published.name)).value();
        BeamExpansion beam(root, spec);
        // Token of a candidate: its path's digits after a leading 1, so that paths have distinct numbers.
        const auto token_of = [](int path, int rank) { return path * 10 + rank; };
        std::vector<int> parents = {1};
        std::vector<TokenId> ids;
        std::vector<float> logprobs;
        int drafted_from = 0;
        for (int level = 0; !parents.empty() && level < spec.levels(); ++level) {
            ids.clear();
            for (const int parent : parents)
                for (int rank = 0; rank < spec.topk; ++rank) ids.push_back(token_of(parent, rank));
            logprobs.assign(ids.size(), -1.0f);
            const std::vector<int> counts(parents.size(), spec.topk);
            if (level == 0)
                beam.start(ids, logprobs);
            else
                beam.extend(ids, logprobs, counts);
            parents.clear();
            for (const BeamExpansion::BeamNode& node : beam.beam()) parents.push_back(node.token);
            drafted_from += static_cast<int>(parents.size());
        }
        EXPECT_TRUE(beam.beam().empty());
        EXPECT_EQ(drafted_from, spec.drafting_nodes());
        DraftTree tree = beam.rerank();
        ASSERT_TRUE(tree.finish().ok());
        std::vector<TokenId> expected = {root};
        for (std::string_view rest = published.paths; !rest.empty();) {
            const std::string_view path = rest.substr(0, rest.find(' '));
            int number = 1;
            for (const char digit : path) number = token_of(number, digit - '0');
            expected.push_back(number);
            rest.remove_prefix(std::min(rest.size(), path.size() + 1));
        }
        EXPECT_EQ(tree.tokens, expected) << published.name;
        for (std::size_t i = 1; i < expected.size(); ++i) {
            const TokenId parent = tree.tokens[tree.parents[i]];
            EXPECT_EQ(tree.parents[i] == 0 ? 1 : parent, expected[i] / 10) << published.name;
        }
    }
}

TEST(BeamExpansion, StaticTreeSkipsMissingCandidates) {
    const testing::ScratchFolder folder;
    std::ofstream(folder.file("tree.json")) << "[[0], [1], [2], [1, 0], [1, 1], [2, 0], [1, 1, 0]]";
    const TreeSpec spec = parse_tree_spec("choices:" + folder.file("tree.json")).value();
    BeamExpansion beam(root, spec);
    beam.start(std::vector<TokenId>{A, B}, logs({.6, .3}));
    ASSERT_EQ(beam.beam().size(), 1u);
    EXPECT_EQ(beam.beam()[0].token, B);
    beam.extend(std::vector<TokenId>{C, D, E}, logs({.5, .3, .1}), std::vector<int>{3});
    beam.extend(std::vector<TokenId>{no_token, no_token, no_token}, logs({.5, .3, .1}), std::vector<int>{0});
    const DraftTree tree = beam.rerank();
    EXPECT_EQ(tree.tokens, (std::vector<TokenId>{root, A, B, C, D}));
    EXPECT_EQ(tree.parents, (std::vector<int>{-1, 0, 0, 2, 2}));
}

TEST(BeamExpansion, EqualScoresGoToTheSmallerFlatIndex) {
    BeamExpansion beam(root, TreeSpec{1, 2, 4});
    beam.start(std::vector<TokenId>{A, B}, std::vector<float>{0.0f, 0.0f});
    beam.extend(std::vector<TokenId>{C, D, E, F}, std::vector<float>{0, 0, 0, 0}, std::vector<int>{2, 2});
    DraftTree tree = beam.rerank();
    EXPECT_EQ(tree.tokens, (std::vector<TokenId>{root, A, B, C}));
    EXPECT_TRUE(tree.finish().ok());
}

TEST(BeamExpansion, UnusableLogprobsKeepTheTreeClosed) {
    const float bad = std::numeric_limits<float>::quiet_NaN(),
                never = -std::numeric_limits<float>::infinity();
    BeamExpansion beam(root, TreeSpec{1, 2, 6});
    // 0.001 above zero: the rounding error of a one-token support.
    beam.start(std::vector<TokenId>{A, B}, std::vector<float>{bad, never});
    beam.extend(std::vector<TokenId>{C, D, E, F}, std::vector<float>{0.001f, never, bad, 0.001f},
                std::vector<int>{2, 2});
    DraftTree tree = beam.rerank();
    EXPECT_EQ(tree.size(), 6);
    EXPECT_TRUE(tree.finish().ok());
}

TEST(BeamExpansion, ShortShortlistsAreClipped) {
    BeamExpansion beam(root, TreeSpec{2, 3, 10});
    beam.start(std::vector<TokenId>{A, B}, logs({.6, .3}));
    ASSERT_EQ(beam.beam().size(), 2u);
    beam.extend(std::vector<TokenId>{C, no_token, no_token, D, E, no_token}, logs({.5, .1, .1, .4, .3, .1}),
                std::vector<int>{1, 2});
    EXPECT_EQ(beam.candidates(), 5);
    DraftTree tree = beam.rerank();
    EXPECT_EQ(tree.tokens, (std::vector<TokenId>{root, A, B, C, D, E}));
}

TEST(DraftTree, FinishNamesTheInvalidNode) {
    DraftTree tree = DraftTree::with_root(root);
    tree.add(A, 0, -0.1f);
    tree.add(A, 0, -0.2f);
    EXPECT_NE(tree.finish().error().message.find("two children with token 1"), std::string::npos);

    DraftTree backwards = DraftTree::with_root(root);
    backwards.add(A, 0, -0.1f);
    backwards.parents[1] = 1;
    EXPECT_NE(backwards.finish().error().message.find("node 1 has parent 1"), std::string::npos);

    DraftTree huge = DraftTree::with_root(root);
    for (int i = 0; i < max_tree_nodes; ++i) huge.add(i, 0, -1.0f);
    EXPECT_FALSE(huge.finish().ok());
    EXPECT_FALSE(DraftTree{}.finish().ok());
}

TEST(TreeSpec, ReadsEveryForm) {
    EXPECT_EQ(parse_tree_spec("depth=5,topk=10,nodes=60").value(), (TreeSpec{5, 10, 60}));
    EXPECT_EQ(parse_tree_spec(" nodes=8 , depth=2, topk=3 ").value(), (TreeSpec{2, 3, 8}));
    EXPECT_EQ(parse_tree_spec("chain=6").value(), (TreeSpec{5, 1, 7}));
    EXPECT_EQ(parse_tree_spec("chain=1").value(), (TreeSpec{0, 1, 2}));
    // a chain of this depth has fewer than the default 12 nodes
    EXPECT_EQ(parse_tree_spec("topk=1").value(), (TreeSpec{3, 1, 5}));
    EXPECT_EQ(parse_tree_spec("paper:fr-spec").value(), (TreeSpec{5, 10, 60}));
    EXPECT_EQ(parse_tree_spec("paper:fr-spec-1b").value(), (TreeSpec{2, 10, 30}));
    EXPECT_EQ(parse_tree_spec("paper:specvocab").value(), (TreeSpec{7, 10, 60}));
    EXPECT_EQ(parse_tree_spec("paper:slimspec").value(), (TreeSpec{5, 1, 7}));
    EXPECT_EQ(parse_tree_spec("paper:dynaspec").value(), (TreeSpec{5, 10, 60}));
    EXPECT_EQ(parse_tree_spec("paper:microspec").value(), (TreeSpec{5, 10, 60}));
    EXPECT_EQ(parse_tree_spec("paper:fr-spec,order=fr").value(), (TreeSpec{5, 10, 60, TreeOrder::fr}));
    EXPECT_EQ(parse_tree_spec("order=eagle").value(), TreeSpec{});
    EXPECT_EQ(parse_tree_spec("depth=2,topk=3,nodes=8,order=fr").value(), (TreeSpec{2, 3, 8, TreeOrder::fr}));
}

TEST(TreeSpec, PublishedChoicesHaveThePublishedShapes) {
    const std::map<std::string, std::vector<int>> by_depth = {
        {"mc_sim_7b_63", {10, 28, 23, 2}},      {"vicuna_7b_stage2", {10, 23, 23, 7}},
        {"vicuna_13b_stage2", {10, 19, 25, 9}}, {"vicuna_33b_stage2", {10, 24, 24, 5}},
        {"zephyr_stage2", {10, 27, 23, 3}},     {"eagle_mc_sim_7b_63", {4, 8, 8, 3, 2}}};
    EXPECT_EQ(by_depth.size(), published_choices().size());
    for (const auto& [name, counts] : by_depth) {
        const TreeSpec spec = parse_tree_spec("choices:" + name).value();
        ASSERT_EQ(spec.levels(), static_cast<int>(counts.size())) << name;
        std::vector<int> found(counts.size(), 0);
        for (const TreeChoices::Node& node : spec.choices->nodes) ++found[node.depth - 1];
        EXPECT_EQ(found, counts) << name;
        EXPECT_EQ(spec.nodes, static_cast<int>(spec.choices->nodes.size()) + 1);
        EXPECT_EQ(spec.topk, spec.choices->max_rank() + 1);
    }
}

TEST(TreeSpec, ChoicesAreTruncatedByLevels) {
    const TreeSpec whole = parse_tree_spec("choices:mc_sim_7b_63").value();
    const TreeSpec two = parse_tree_spec("choices:mc_sim_7b_63,levels=2").value();
    EXPECT_EQ(two.nodes, 1 + 10 + 28);
    EXPECT_EQ(two.levels(), 2);
    EXPECT_EQ(clip_tree(whole, 2), two);
    EXPECT_EQ(clip_tree(whole, 4), whole);
    EXPECT_NE(two, whole);
    EXPECT_EQ(clip_tree(whole, 0).nodes, 1);
    EXPECT_EQ(to_text(two), "choices:mc_sim_7b_63,levels=2");
    EXPECT_EQ(to_text(clip_tree(two, 1)), "choices:mc_sim_7b_63,levels=1");
    EXPECT_EQ(parse_tree_spec("choices:mc_sim_7b_63,levels=4").value(), whole);
}

TEST(TreeSpec, RejectsInvalidChoicesFiles) {
    const testing::ScratchFolder folder;
    const std::string file = folder.file("tree.json");
    const auto error_message = [&](const std::string& text) {
        std::ofstream(file, std::ios::trunc) << text;
        const auto spec = parse_tree_spec("choices:" + file);
        EXPECT_FALSE(spec.ok()) << text;
        if (spec.ok()) return std::string();
        EXPECT_EQ(spec.error().kind, ErrorKind::bad_input);
        EXPECT_NE(spec.error().message.find(file), std::string::npos) << spec.error().message;
        return spec.error().message;
    };
    EXPECT_NE(error_message("[[0], [1, 0]]").find("path [1, 0] has no parent; add [1]"), std::string::npos);
    EXPECT_NE(error_message("[[0], [0, 1], [0, 1]]").find("path [0, 1] occurs twice"), std::string::npos);
    EXPECT_NE(error_message("[[0], []]").find("empty path"), std::string::npos);
    EXPECT_NE(error_message("[]").find("has no paths"), std::string::npos);
    EXPECT_NE(error_message("[[64]]").find("rank 64 of path [64] is outside 0..63"), std::string::npos);
    EXPECT_NE(error_message("[[-1]]").find("outside 0..63"), std::string::npos);
    EXPECT_NE(error_message("[[9999999999999999999]]").find("outside 0..63"), std::string::npos);
    EXPECT_NE(error_message("[[0.5]]").find("entry 0 has a rank that is not a whole number"),
              std::string::npos);
    EXPECT_NE(error_message("[[0], 1]").find("entry 1 is not a path"), std::string::npos);
    EXPECT_NE(error_message("{}").find("is not a list of paths"), std::string::npos);
    EXPECT_NE(error_message("[[0], ").find("is not a list of paths"), std::string::npos);
    std::string deep, path = "0";
    for (int level = 0; level < 65; ++level) {
        deep.append(level == 0 ? "[[" : ", [").append(path).append("]");
        path.append(", 0");
    }
    deep.append("]");
    EXPECT_NE(error_message(deep).find("has depth 65; the maximum is 64"), std::string::npos);
    std::string wide = "[[0]";
    for (int i = 0; i < 1023; ++i) wide += ", [0]";
    wide.append("]");
    EXPECT_NE(error_message(wide).find("contains 1024 paths; the maximum is 1023"), std::string::npos);
}

TEST(TreeSpec, TextIsCanonicalAndReadsBack) {
    for (const char* text :
         {"depth=3,topk=4,nodes=12", "chain=6", "chain=1", "depth=0,topk=8,nodes=9",
          "depth=3,topk=4,nodes=12,order=fr", "choices:mc_sim_7b_63", "choices:zephyr_stage2,levels=3"}) {
        const TreeSpec spec = parse_tree_spec(text).value();
        EXPECT_EQ(to_text(spec), text);
        EXPECT_EQ(parse_tree_spec(to_text(spec)).value(), spec);
    }
    EXPECT_EQ(to_text(parse_tree_spec("depth=5,topk=1,nodes=7").value()), "chain=6");
    EXPECT_EQ(to_text(parse_tree_spec("depth=5,topk=1,nodes=4").value()), "depth=5,topk=1,nodes=4");
}

TEST(TreeSpec, LevelsAreClippedNearContextEnd) {
    const TreeSpec spec{5, 10, 60};
    EXPECT_EQ(clip_tree(spec, 100), spec);
    EXPECT_EQ(clip_tree(spec, 6), spec);
    EXPECT_EQ(clip_tree(spec, 2), (TreeSpec{1, 10, 60}));
    EXPECT_EQ(clip_tree(spec, 1), (TreeSpec{0, 10, 11}));
    EXPECT_EQ(clip_tree(spec, 0).nodes, 1);
    EXPECT_EQ(clip_tree(spec, -3).nodes, 1);
    EXPECT_EQ(clip_tree(TreeSpec{4, 1, 6}, 2), (TreeSpec{1, 1, 3}));
}

struct InvalidSpec {
    const char* text;
    const char* says;
};
class TreeSpecError : public ::testing::TestWithParam<InvalidSpec> {};

TEST_P(TreeSpecError, NamesFieldValueAndRange) {
    const auto spec = parse_tree_spec(GetParam().text);
    ASSERT_FALSE(spec.ok()) << GetParam().text;
    EXPECT_EQ(spec.error().kind, ErrorKind::bad_input);
    EXPECT_NE(spec.error().message.find(GetParam().says), std::string::npos) << spec.error().message;
}
INSTANTIATE_TEST_SUITE_P(
    All, TreeSpecError,
    ::testing::Values(
        InvalidSpec{"", "empty"}, InvalidSpec{"nodes=1", "nodes=1 is outside 2..1024"},
        InvalidSpec{"nodes=1025", "nodes=1025 is outside 2..1024"},
        InvalidSpec{"depth=-1", "depth=-1 is outside 0..63"},
        InvalidSpec{"topk=0", "topk=0 is outside 1..64"}, InvalidSpec{"topk=65", "topk=65 is outside 1..64"},
        InvalidSpec{"depth=0,topk=4,nodes=6",
                    "nodes=6 exceeds what depth=0,topk=4 can propose; use nodes=2..5"},
        InvalidSpec{"depth=3,depth=4", "depth is given twice"}, InvalidSpec{"width=3", "\"width=3\""},
        InvalidSpec{"depth=3,,topk=4", "\"\""}, InvalidSpec{"depth", "\"depth\""},
        InvalidSpec{"depth=2x", "depth=2x is not a whole number"},
        InvalidSpec{"depth=99999999999", "is not a whole number"},
        InvalidSpec{"chain=0", "chain=0 is outside 1..64"},
        InvalidSpec{"chain=", "chain= is not a whole number"},
        InvalidSpec{"chain=3,topk=2", "not a whole number"},
        InvalidSpec{"order=fc", "order=fc is unknown; use order=eagle or order=fr"},
        InvalidSpec{"chain=3,order=fr", "a chain has only one order"},
        InvalidSpec{"choices:mc_sim_7b_63,order=fr", "has the order of its paths"},
        InvalidSpec{"choices:mc_sim_7b_64", "neither a published tree (mc_sim_7b_63, vicuna_7b_stage2"},
        InvalidSpec{"choices:", "neither a published tree"},
        InvalidSpec{"choices:mc_sim_7b_63,levels=5", "levels=5 is outside 1..4"},
        InvalidSpec{"chains=3", "\"chains=3\""}, InvalidSpec{"paper:eagle9", "known: fr-spec, fr-spec-1b"}));

}  // namespace
}  // namespace draftscope
