#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/verify/acceptance_rule.h"
#include "tests/gpu/device_pair.h"
#include "tests/support/beam_expansion.h"
#include "tests/support/tree_verifier.h"

/// Re-ranking, acceptance and compaction on a device, compared with the reference device and the host.
namespace draftscope::testing {
namespace {

using kernels::half_t;

class TreeOps : public DevicePair {};

/// A pool as BeamOp writes it level by level, and the host's expansion of the same candidates.
struct Pool {
    Pool(const TreeSpec& spec, std::uint64_t seed) : beam(99, spec) {
        Rng rng(seed);
        const auto k = spec.topk;
        std::vector<int> places(1, -1);  // of the level's rows
        std::vector<float> above(1, 0.0f);
        for (int level = 0; level <= spec.depth; ++level) {
            const std::size_t rows = places.size(), first = tokens.size();
            std::vector<std::int32_t> ids;
            std::vector<float> values;
            for (std::size_t i = 0; i < rows * k; ++i) {
                ids.push_back(static_cast<std::int32_t>(i % k + 10 * rng.below(100) * k));
                // Deliberate ties, and some probabilities of 0.
                const float value = -0.25f * static_cast<float>(rng.below(9));
                values.push_back(rng.below(17) == 0 ? -INFINITY : value);
                tokens.push_back(ids.back());
                logprobs.push_back(values.back());
                scores.push_back(above[i / k] + values.back());
                parents.push_back(places[i / k]);
            }
            if (level == 0) {
                beam.start(ids, values);
            } else {
                beam.extend(ids, values, std::vector<int>(rows, spec.topk));
            }
            places.clear();
            above.clear();
            for (const BeamExpansion::BeamNode& node : beam.beam()) {
                EXPECT_GE(node.flat, first);
                places.push_back(node.flat);
                above.push_back(node.score);
            }
        }
    }
    BeamExpansion beam;
    std::vector<std::int32_t> tokens, parents;
    std::vector<float> logprobs, scores;
};

/// Rows of a step on both devices.
struct StepRows {
    StepRows(kernels::Backend& backend, kernels::Backend& twin, int rows, int width_in)
        : width(width_in),
          tokens(backend, twin, rows, -7),
          parents(backend, twin, rows, -7),
          positions(backend, twin, rows, -7),
          sizes(backend, twin, rows, -7),
          ancestor_slots(backend, twin, rows * width, -7),
          logprobs(backend, twin, rows, -7.0f),
          uniforms(backend, twin, rows, -7.0) {}
    kernels::TreeRows on(bool twin, bool with_sampling) const {
        kernels::TreeRows rows{tokens.on(twin),  parents.on(twin),        positions.on(twin),
                               sizes.on(twin),   ancestor_slots.on(twin), width,
                               logprobs.on(twin)};
        if (with_sampling) rows.uniforms = uniforms.on(twin);
        return rows;
    }
    int width;
    Both<std::int32_t> tokens, parents, positions, sizes, ancestor_slots;
    Both<float> logprobs;
    Both<double> uniforms;
};

TEST_P(TreeOps, RerankMatchesTheHost) {
    for (const char* text :
         {"chain=1", "chain=6", "depth=3,topk=4,nodes=12", "depth=3,topk=4,nodes=12,order=fr",
          "depth=5,topk=10,nodes=60", "depth=7,topk=10,nodes=60,order=fr", "depth=3,topk=10,nodes=311",
          "depth=1,topk=63,nodes=1000"}) {
        SCOPED_TRACE(text);
        const TreeSpec spec = *parse_tree_spec(text);
        Pool pool(spec, 3);
        DraftTree tree = pool.beam.rerank();
        ASSERT_TRUE(tree.finish().ok() || spec.topk > 1);
        const int n = tree.size(), first_row = 3, width = spec.depth + 3;
        ASSERT_TRUE(kernels::can_rerank(static_cast<int>(pool.tokens.size()), n));
        const Both<std::int32_t> tokens(device(), twin(), pool.tokens),
            parents(device(), twin(), pool.parents);
        const Both<float> logprobs(device(), twin(), pool.logprobs), scores(device(), twin(), pool.scores);
        const StepRows rows(device(), twin(), first_row + n + 2, width);
        std::vector<double> uniforms;
        for (int d = 0; d < width; ++d) uniforms.push_back(d / 64.0);
        const Both<double> by_depth(device(), twin(), uniforms);
        for (const bool on_twin : {false, true}) {
            kernels::RerankOp op;
            op.candidates = static_cast<int>(pool.tokens.size());
            op.nodes = n;
            op.by_score = spec.order == TreeOrder::fr;
            op.pool_tokens = tokens.on(on_twin);
            op.pool_logprobs = logprobs.on(on_twin);
            op.pool_scores = scores.on(on_twin);
            op.pool_parents = parents.on(on_twin);
            op.root = 99;
            op.first_row = first_row;
            op.first_slot = 50;
            op.first_position = 70;
            op.rows = rows.on(on_twin, spec.topk != 4);
            op.uniforms = by_depth.on(on_twin);
            (on_twin ? twin() : device()).rerank(std::span(&op, 1));
        }
        EXPECT_EQ(rows.tokens.read(false), rows.tokens.read(true));
        EXPECT_EQ(rows.parents.read(false), rows.parents.read(true));
        EXPECT_EQ(rows.positions.read(false), rows.positions.read(true));
        EXPECT_EQ(rows.sizes.read(false), rows.sizes.read(true));
        EXPECT_EQ(rows.ancestor_slots.read(false), rows.ancestor_slots.read(true));
        EXPECT_EQ(rows.logprobs.read(false), rows.logprobs.read(true));
        EXPECT_EQ(rows.uniforms.read(false), rows.uniforms.read(true));
        const auto found = rows.tokens.read(false), above = rows.parents.read(false),
                   ancestor_slots = rows.ancestor_slots.read(false), positions = rows.positions.read(false);
        std::vector<int> path;
        const AncestorMask mask = AncestorMask::from_parents(tree.parents);
        for (int i = 0; i < n; ++i) {
            const std::size_t r = first_row + i;
            EXPECT_EQ(found[r], tree.tokens[i]);
            EXPECT_EQ(above[r], first_row + std::max(tree.parents[i], 0));
            EXPECT_EQ(positions[r], 70 + tree.depths[i]);
            mask.path(i, path);
            for (std::size_t p = 0; p < path.size(); ++p)
                EXPECT_EQ(ancestor_slots[r * width + p], 50 + path[p]);
        }
        EXPECT_EQ(found[first_row - 1], -7);
        EXPECT_EQ(found[first_row + n], -7);
    }
}

TEST_P(TreeOps, AcceptanceAndCompactionMatchTheHost) {
    Rng rng(11);
    std::size_t longest = 0;
    for (int turn = 0; turn < 30; ++turn) {
        // A random tree with distinct siblings; choices are often a child's token.
        const int n = 1 + static_cast<int>(rng.below(70)), first_row = static_cast<int>(rng.below(4));
        DraftTree tree = DraftTree::with_root(5);
        for (int i = 1; i < n; ++i) {
            const auto back = static_cast<int>(rng.below(4));
            tree.add(1000 + i, std::max(0, i - 1 - back), -1.0f);
        }
        std::vector<TargetSample> choices(n);
        std::vector<std::int32_t> parents(first_row + n, 0), tokens(first_row + n, 5),
            chosen(3 * (first_row + n), 1001);
        for (int i = 0; i < n; ++i) {
            std::vector<int> children;
            for (int c = 0; c < n; ++c)
                if (tree.parents[c] == i) children.push_back(c);
            const bool follow = !children.empty() && rng.below(8) != 0;
            choices[i].token = follow ? tree.tokens[children[rng.below(children.size())]] : TokenId{77};
            parents[first_row + i] = first_row + std::max(tree.parents[i], 0);
            tokens[first_row + i] = tree.tokens[i];
            chosen[3 * (first_row + i)] = choices[i].token;
        }
        const Acceptance expected = follow_choices(tree, choices);
        longest = std::max(longest, expected.path.size());
        const int width = n + 1, planes = 4, kv = 24, slots = first_row + n + 9;
        const Both<std::int32_t> above(device(), twin(), parents), ids(device(), twin(), tokens),
            wanted(device(), twin(), chosen), path(device(), twin(), width, -7),
            count(device(), twin(), 1, -7), firsts(device(), twin(), width, -7),
            first_count(device(), twin(), 1, -7);
        // Without choices, the first children up to a number of nodes.
        const int max_count = 1 + turn % 5;
        std::vector<std::int32_t> first_children = {0};
        for (int i = 1; i < n && static_cast<int>(first_children.size()) < max_count; ++i)
            if (tree.parents[i] == first_children.back()) first_children.push_back(i);
        const std::vector<half_t> before = random_halves(planes * slots, kv, 4);
        const Both<half_t> cache(device(), twin(), before);
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            kernels::FollowArgmaxOp op;
            op.rows.tokens = ids.on(on_twin);
            op.rows.parents = above.on(on_twin);
            op.rows.width = width;
            op.first_row = first_row;
            op.nodes = n;
            op.choices = wanted.on(on_twin);
            op.choice_stride = 3;
            op.max_count = width;
            op.path = path.on(on_twin);
            op.count = count.on(on_twin);
            on.follow_argmax(std::span(&op, 1));
            op.choices = nullptr;
            op.max_count = std::min(max_count, width);
            op.path = firsts.on(on_twin);
            op.count = first_count.on(on_twin);
            on.follow_argmax(std::span(&op, 1));
            const kernels::CompactOp moved{{cache.on(on_twin), std::int64_t{slots} * kv},
                                           planes,
                                           kv,
                                           5,
                                           n,
                                           path.on(on_twin),
                                           count.on(on_twin)};
            on.compact(std::span(&moved, 1));
        }
        for (const bool on_twin : {false, true}) {
            std::vector<std::int32_t> found = path.read(on_twin);
            ASSERT_EQ(count.read(on_twin)[0], static_cast<std::int32_t>(expected.path.size()));
            found.resize(expected.path.size());
            EXPECT_EQ(found, std::vector<std::int32_t>(expected.path.begin(), expected.path.end()));
            std::vector<std::int32_t> first_path = firsts.read(on_twin);
            ASSERT_EQ(first_count.read(on_twin)[0], static_cast<std::int32_t>(first_children.size()));
            first_path.resize(first_children.size());
            EXPECT_EQ(first_path, first_children);
        }
        EXPECT_EQ(cache.read(false), cache.read(true));
    }
    EXPECT_GT(longest, 8u);
}

/// More sequences than one launch takes, of different sizes: each gets its own tree, path and compaction.
TEST_P(TreeOps, ManySequencesShareACall) {
    const int sequences = 31, nodes = 6, width = 4, planes = 2, kv = 16, slots = 30;
    const TreeSpec spec = *parse_tree_spec("depth=2,topk=3,nodes=6");
    const int candidates = spec.topk + spec.depth * spec.topk * spec.topk;
    std::vector<std::int32_t> pool_tokens, pool_parents, choices;
    std::vector<float> pool_logprobs, pool_scores;
    Rng rng(23);
    for (int s = 0; s < sequences; ++s) {
        const Pool pool(spec, 100 + s);
        ASSERT_EQ(static_cast<int>(pool.tokens.size()), candidates);
        pool_tokens.insert(pool_tokens.end(), pool.tokens.begin(), pool.tokens.end());
        pool_parents.insert(pool_parents.end(), pool.parents.begin(), pool.parents.end());
        pool_logprobs.insert(pool_logprobs.end(), pool.logprobs.begin(), pool.logprobs.end());
        pool_scores.insert(pool_scores.end(), pool.scores.begin(), pool.scores.end());
        // A node's choice is often one of the candidates.
        for (int n = 0; n < nodes; ++n)
            choices.push_back(pool.tokens[rng.below(static_cast<unsigned>(n == 0 ? spec.topk : candidates))]);
    }
    const Both<std::int32_t> tokens(device(), twin(), pool_tokens), parents(device(), twin(), pool_parents),
        chosen(device(), twin(), choices);
    const Both<float> logprobs(device(), twin(), pool_logprobs), scores(device(), twin(), pool_scores);
    const StepRows rows(device(), twin(), sequences * nodes, width);
    const Both<std::int32_t> paths(device(), twin(), sequences * (width + 1), -7);
    const Both<half_t> caches(device(), twin(), random_halves(sequences * planes * slots, 64, 4));
    for (const bool on_twin : {false, true}) {
        kernels::Backend& on = on_twin ? twin() : device();
        std::vector<kernels::RerankOp> trees;
        std::vector<kernels::FollowArgmaxOp> acceptances;
        std::vector<kernels::CompactOp> moves;
        for (int s = 0; s < sequences; ++s) {
            kernels::RerankOp& tree = trees.emplace_back();
            const std::ptrdiff_t from = std::ptrdiff_t{s} * candidates;
            tree.candidates = candidates;
            tree.nodes = nodes;
            tree.pool_tokens = tokens.on(on_twin) + from;
            tree.pool_logprobs = logprobs.on(on_twin) + from;
            tree.pool_scores = scores.on(on_twin) + from;
            tree.pool_parents = parents.on(on_twin) + from;
            tree.root = s;
            tree.first_row = s * nodes;
            tree.first_slot = tree.first_position = s % 7;
            tree.rows = rows.on(on_twin, false);
            std::int32_t* path = paths.on(on_twin) + std::ptrdiff_t{s} * (width + 1);
            acceptances.push_back(
                {tree.rows, tree.first_row, nodes, chosen.on(on_twin), 1, width, path, path + width});
            kernels::CompactOp& move = moves.emplace_back();
            move.cache = {caches.on(on_twin) + std::ptrdiff_t{s} * planes * slots * 64,
                          std::int64_t{slots} * kv};
            move.planes = planes;
            move.width = kv;
            move.first = tree.first_slot;
            move.max_count = width;
            move.path = path;
            move.count = path + width;
        }
        on.rerank(trees);
        on.follow_argmax(acceptances);
        on.compact(moves);
    }
    EXPECT_EQ(rows.tokens.read(false), rows.tokens.read(true));
    EXPECT_EQ(rows.parents.read(false), rows.parents.read(true));
    EXPECT_EQ(rows.ancestor_slots.read(false), rows.ancestor_slots.read(true));
    EXPECT_EQ(caches.read(false), caches.read(true));
    const std::vector<std::int32_t> found = paths.read(false), expected = paths.read(true);
    int longer = 0;
    for (int s = 0; s < sequences; ++s) {
        const std::size_t at = s * (width + 1);
        const std::int32_t count = expected[at + width];
        ASSERT_EQ(found[at + width], count);
        for (std::int32_t i = 0; i < count; ++i) EXPECT_EQ(found[at + i], expected[at + i]);
        longer += count > 1 ? 1 : 0;
    }
    EXPECT_GT(longer, 10);
}

INSTANTIATE_TEST_SUITE_P(Devices, TreeOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
