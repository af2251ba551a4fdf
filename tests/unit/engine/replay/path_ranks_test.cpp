#include "engine/replay/path_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/draft/registry.h"
#include "tests/support/replay_fixture.h"
#include "tests/support/results.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_decode.h"

namespace draftscope::testing {
namespace {

class PathRanksOfTrees : public ::testing::Test, protected TinyDecode {
  protected:
    PathRanksOfTrees() : TinyDecode(few_token_options(256)) {}

    /// What the ranks know of a round.
    static std::vector<std::string> texts(const std::vector<HeadRound>& rounds) {
        std::vector<std::string> out;
        for (const HeadRound& one : rounds)
            out.push_back(fmt::format("{} {} {} {} {}", one.prefix, one.tree_nodes, one.accepted,
                                      one.committed, one.clipped));
        return out;
    }

    TinyArtefacts artefacts_{fixture_};
    ScratchFolder scratch_;
};

/// One pass at the largest depth and without a limit of nodes gives the rounds of every smaller tree.
TEST_F(PathRanksOfTrees, EqualTheRoundsOfSeparateReplays) {
    std::int64_t accepted = 0, trees = 0;
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.temperature = temperature, .max_new = 24};
        const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
        const auto recording = record(fixture_, setting, varied_prompts(), {layers.begin(), layers.end()},
                                      scratch_.file(temperature > 0 ? "sampled" : "greedy"));
        ASSERT_NE(recording, nullptr);
        for (const DrafterInfo& info : drafter_registry()) {
            if (info.id == "none") continue;
            Drafter& drafter = fixture_.drafter(std::string(info.id));
            EXPECT_EQ(drafter.properties().nested_trees, info.id != "suffix" && info.id != "pair");
            if (!drafter.properties().nested_trees) continue;
            for (const std::string head : {"full", "fr-spec:v=6", "specvocab:k=4", "microspec:source=ctx"}) {
                if (head != "full" && !info.uses_head) continue;
                const ReplayHead replayed{info.uses_head ? &fixture_.head(head, drafter) : nullptr};
                ASSERT_TRUE(has_path_ranks(drafter, replayed.head));
                for (const int topk : {1, 2, 4}) {
                    if (topk > 1 && info.chains_only) continue;
                    ReplayOptions options;
                    options.covered_prob = false;
                    options.tree = {3, topk, 2};
                    if (drafter.properties().max_levels > 0)
                        options.tree.depth =
                            std::min(options.tree.depth, drafter.properties().max_levels - 1);
                    const auto ranks = require(path_ranks(*recording, fixture_.target(), drafter, replayed,
                                                          fixture_.exec(1), options));
                    for (const TreeSpec& tree : {TreeSpec{0, topk, 3}, TreeSpec{1, topk, 6},
                                                 TreeSpec{3, topk, 5}, TreeSpec{3, topk, 12}}) {
                        if (tree.depth > options.tree.depth) continue;
                        options.tree = tree;
                        if (topk == 1) options.tree.nodes = tree.depth + 2;
                        const std::span<const ReplayHead> heads(&replayed, replayed.head ? 1 : 0);
                        const auto expected = require(
                            replay(*recording, fixture_.target(), drafter, heads, fixture_.exec(1), options));
                        for (std::size_t p = 0; p < ranks.size(); ++p) {
                            const auto found = rounds_of_tree(ranks[p], options.tree);
                            ASSERT_EQ(texts(found), texts(expected.rounds[0][p]))
                                << info.id << " " << head << " " << to_text(options.tree) << " prompt " << p;
                            for (const HeadRound& round : found) accepted += round.accepted;
                        }
                        ++trees;
                        options.tree.depth = 3;
                        if (drafter.properties().max_levels > 0)
                            options.tree.depth = std::min(3, drafter.properties().max_levels - 1);
                    }
                }
            }
        }
    }
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(trees, 100);
    Drafter& eagle2 = fixture_.drafter("eagle2");
    EXPECT_FALSE(has_path_ranks(eagle2, &fixture_.head("microspec:wmax=6", eagle2)));
    EXPECT_FALSE(has_path_ranks(fixture_.drafter("suffix"), nullptr));
}

/// Policies choose the lengths of one pass as those of a replay for each.
TEST_F(PathRanksOfTrees, EqualReplaysOfAdaptiveLengths) {
    DecodeCase setting{.max_new = 40};
    const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
    const auto recording =
        record(fixture_, setting, varied_prompts(), {layers.begin(), layers.end()}, scratch_.file("r"));
    ASSERT_NE(recording, nullptr);
    std::set<int> lengths;
    for (const std::string name : {"eagle3", "eagle2", "ngram"}) {
        Drafter& drafter = fixture_.drafter(name);
        const ReplayHead replayed{drafter.uses_head() ? &fixture_.head("full", drafter) : nullptr};
        const std::span<const ReplayHead> heads(&replayed, replayed.head ? 1 : 0);
        ReplayOptions options;
        options.covered_prob = false;
        options.tree = {5, 1, 7};
        const auto ranks =
            require(path_ranks(*recording, fixture_.target(), drafter, replayed, fixture_.exec(1), options));
        for (const std::string policy :
             {"transformers,max=6", "exllama,max=5,skip=0.9", "sglang,max=4", "p-min,max=6,p=0.02",
              "confidence,max=5,p=0.05", "cumulative,max=6,p=0.0005"}) {
            options.tree = require(parse_tree_spec("adaptive:" + policy));
            if (!check_tree(drafter, options.tree).ok()) continue;
            const auto expected =
                require(replay(*recording, fixture_.target(), drafter, heads, fixture_.exec(1), options));
            for (std::size_t p = 0; p < ranks.size(); ++p) {
                const auto found = rounds_of_tree(ranks[p], options.tree);
                ASSERT_EQ(texts(found), texts(expected.rounds[0][p])) << name << " " << policy << " " << p;
                for (const HeadRound& round : found) lengths.insert(round.tree_nodes - 1);
            }
        }
    }
    EXPECT_EQ(lengths.size(), 7u);  // 0 to 6
}

}  // namespace
}  // namespace draftscope::testing
