#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "tests/support/beam_expansion.h"

namespace draftscope {
namespace {

/// Reference implementation: every candidate by its complete path, expanded and ranked with full sorts. It
/// shares no beams or flat indices with the code under test.
struct Reference {
    struct Entry {
        std::vector<TokenId> path;
        float score;
        float logprob;
    };
    std::vector<Entry> all;
    std::vector<std::size_t> beam;

    static bool better(const std::vector<Entry>& e, std::size_t a, std::size_t b) {
        return e[a].score != e[b].score ? e[a].score > e[b].score : a < b;
    }
};

/// Random candidates: the same path always proposes the same tokens. Few distinct log-probs make ties
/// frequent; some are -inf.
struct Proposer {
    std::uint64_t seed;
    int topk;
    void propose(const std::vector<TokenId>& path, std::vector<TokenId>& ids,
                 std::vector<float>& logprobs) const {
        std::uint64_t stream = 1;
        for (const TokenId t : path) stream = stream * 131 + static_cast<std::uint64_t>(t) + 7;
        Rng rng(seed, stream);
        const int count = static_cast<int>(rng.below(static_cast<std::uint32_t>(topk) + 1));
        const TokenId first = static_cast<TokenId>(rng.below(50));
        std::vector<float> values;
        for (int i = 0; i < count; ++i) {
            const std::uint32_t level = rng.below(4);
            values.push_back(level == 3 ? -std::numeric_limits<float>::infinity()
                                        : -0.5f * static_cast<float>(level));
        }
        std::sort(values.begin(), values.end(), std::greater<>());
        for (int i = 0; i < count; ++i) {
            ids.push_back(first + i);
            logprobs.push_back(values[i]);
        }
    }
};

Reference grow_reference(const Proposer& proposer, const TreeSpec& spec) {
    Reference ref;
    std::vector<std::vector<TokenId>> frontier = {{}};
    std::vector<float> scores = {0.0f};
    for (int level = 0; level <= spec.depth; ++level) {
        const std::size_t first = ref.all.size();
        for (std::size_t b = 0; b < frontier.size(); ++b) {
            std::vector<TokenId> ids;
            std::vector<float> logprobs;
            proposer.propose(frontier[b], ids, logprobs);
            for (std::size_t c = 0; c < ids.size(); ++c) {
                std::vector<TokenId> path = frontier[b];
                path.push_back(ids[c]);
                ref.all.push_back({path, scores[b] + logprobs[c], logprobs[c]});
            }
        }
        std::vector<std::size_t> order(ref.all.size() - first);
        std::iota(order.begin(), order.end(), first);
        if (level > 0)
            std::sort(order.begin(), order.end(),
                      [&](std::size_t a, std::size_t b) { return Reference::better(ref.all, a, b); });
        order.resize(std::min(order.size(), static_cast<std::size_t>(spec.topk)));
        frontier.clear();
        scores.clear();
        for (const std::size_t i : order) {
            frontier.push_back(ref.all[i].path);
            scores.push_back(ref.all[i].score);
        }
        ref.beam = order;
    }
    return ref;
}

std::vector<TokenId> path_of(const DraftTree& tree, int node) {
    std::vector<TokenId> path;
    for (int i = node; i > 0; i = tree.parents[i]) path.push_back(tree.tokens[i]);
    std::reverse(path.begin(), path.end());
    return path;
}

BeamExpansion grow(const Proposer& proposer, const TreeSpec& spec) {
    BeamExpansion beam(999, spec);
    std::vector<TokenId> ids;
    std::vector<float> logprobs;
    proposer.propose({}, ids, logprobs);
    beam.start(ids, logprobs);
    std::vector<std::vector<std::vector<TokenId>>> levels;  // paths of each level's beam rows
    for (int level = 1; level <= spec.depth; ++level) {
        std::vector<std::vector<TokenId>> paths;
        for (std::size_t b = 0; b < beam.beam().size(); ++b) {
            std::vector<TokenId> path;
            const auto rows = beam.ancestor_rows(static_cast<int>(b));
            for (std::size_t l = 0; l < rows.size(); ++l)
                path.push_back(levels[l][static_cast<std::size_t>(rows[l])].back());
            path.push_back(beam.beam()[b].token);
            paths.push_back(path);
        }
        levels.push_back(paths);
        const auto cells = paths.size() * static_cast<std::size_t>(spec.topk);
        std::vector<TokenId> level_ids(cells, no_token);
        std::vector<float> level_logprobs(cells, 0.0f);
        std::vector<int> counts;
        for (std::size_t b = 0; b < paths.size(); ++b) {
            std::vector<TokenId> row_ids;
            std::vector<float> row_logprobs;
            proposer.propose(paths[b], row_ids, row_logprobs);
            const auto base = static_cast<std::ptrdiff_t>(b * static_cast<std::size_t>(spec.topk));
            std::copy(row_ids.begin(), row_ids.end(), level_ids.begin() + base);
            std::copy(row_logprobs.begin(), row_logprobs.end(), level_logprobs.begin() + base);
            counts.push_back(static_cast<int>(row_ids.size()));
        }
        beam.extend(level_ids, level_logprobs, counts);
    }
    return beam;
}

RC_GTEST_PROP(TreeProperty, MatchesBruteForceTree, ()) {
    TreeSpec spec{.depth = *rc::gen::inRange(0, 6),
                  .topk = *rc::gen::inRange(1, 8),
                  .nodes = *rc::gen::inRange(2, 120)};
    const Proposer proposer{*rc::gen::arbitrary<std::uint64_t>(), spec.topk};
    const Reference ref = grow_reference(proposer, spec);
    BeamExpansion beam = grow(proposer, spec);
    RC_ASSERT(beam.candidates() == static_cast<int>(ref.all.size()));
    RC_ASSERT(beam.beam().size() == ref.beam.size());

    DraftTree tree = beam.rerank();
    RC_ASSERT(tree.finish().ok());
    std::vector<std::size_t> order(ref.all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return Reference::better(ref.all, a, b); });
    order.resize(std::min(order.size(), static_cast<std::size_t>(spec.nodes - 1)));
    std::sort(order.begin(), order.end());
    RC_ASSERT(tree.size() == static_cast<int>(order.size()) + 1);
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto node = i + 1;
        RC_ASSERT(path_of(tree, static_cast<int>(node)) == ref.all[order[i]].path);
        RC_ASSERT(tree.cum_logprobs[node] == ref.all[order[i]].score);
        RC_ASSERT(tree.logprobs[node] == ref.all[order[i]].logprob);
    }
}

/// FR-Spec's numbering orders the same nodes by descending score, parents first.
RC_GTEST_PROP(TreeProperty, BothOrdersHaveTheSameNodes, ()) {
    TreeSpec spec{.depth = *rc::gen::inRange(0, 6),
                  .topk = *rc::gen::inRange(1, 8),
                  .nodes = *rc::gen::inRange(2, 120)};
    const Proposer proposer{*rc::gen::arbitrary<std::uint64_t>(), spec.topk};
    DraftTree eagle = grow(proposer, spec).rerank();
    spec.order = TreeOrder::fr;
    DraftTree fr = grow(proposer, spec).rerank();
    RC_ASSERT(eagle.finish().ok());
    RC_ASSERT(fr.finish().ok());
    RC_ASSERT(eagle.size() == fr.size());
    std::set<std::pair<std::vector<TokenId>, float>> nodes;
    for (int i = 1; i < eagle.size(); ++i) nodes.emplace(path_of(eagle, i), eagle.cum_logprobs[i]);
    for (int i = 1; i < fr.size(); ++i) {
        const float score = fr.cum_logprobs[i];
        RC_ASSERT(nodes.count({path_of(fr, i), score}) == 1);
        if (i > 1) RC_ASSERT(fr.cum_logprobs[i - 1] >= score);
    }
}

RC_GTEST_PROP(TreeProperty, MaskMatchesAncestors, ()) {
    const int nodes = *rc::gen::inRange(1, 200);
    DraftTree tree = DraftTree::with_root(0);
    for (int i = 1; i < nodes; ++i) tree.add(i, *rc::gen::inRange(0, i), -1.0f);
    RC_ASSERT(tree.finish().ok());
    for (int i = 0; i < nodes; ++i) {
        std::set<int> ancestors;
        for (int a = i; a >= 0; a = tree.parents[a]) ancestors.insert(a);
        for (int j = 0; j < nodes; ++j) RC_ASSERT(tree.mask.test(i, j) == (ancestors.count(j) == 1));
        RC_ASSERT(tree.depths[i] == static_cast<int>(ancestors.size()) - 1);
    }
}

}  // namespace
}  // namespace draftscope
