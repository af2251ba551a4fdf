#include "engine/replay/path_ranks.h"

#include <algorithm>
#include <numeric>

#include "engine/verify/tree_path.h"

namespace draftscope {

bool has_path_ranks(const Drafter& drafter, const LmHead* head) {
    return drafter.properties().nested_trees && (head == nullptr || !head->needs().rounds);
}

PositionRanks rank_path(const DraftTree& tree, std::span<const TokenId> text, int levels) {
    PositionRanks out;
    out.levels = levels;
    if (tree.max_depth() + 1 == tree.size())
        out.logprobs.assign(tree.logprobs.begin() + 1, tree.logprobs.end());
    const std::vector<int> path = follow_path(tree, text);
    // Candidates are numbered level by level, so that a stable order breaks ties as a live tree does.
    std::vector<int> order(std::max(tree.size() - 1, 0));
    std::iota(order.begin(), order.end(), 1);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return tree.cum_logprobs[a] > tree.cum_logprobs[b]; });
    for (int limit = 0; limit < tree.max_depth(); ++limit) {
        std::vector<std::uint16_t> ranks(path.size() - 1);
        std::uint16_t rank = 0;
        for (const int node : order) {
            if (tree.depths[node] > limit + 1) continue;
            ++rank;
            const auto on_path = std::find(path.begin() + 1, path.end(), node);
            if (on_path != path.end()) ranks[on_path - path.begin() - 1] = rank;
        }
        ranks.resize(std::min<std::size_t>(ranks.size(), static_cast<std::size_t>(limit) + 1));
        out.candidates.push_back(rank);
        out.ranks.push_back(std::move(ranks));
    }
    return out;
}

int accepted_at(const PositionRanks& at, const TreeSpec& tree) {
    const int levels = std::min({tree.levels(), at.levels, static_cast<int>(at.ranks.size())});
    if (levels <= 0) return 0;
    const auto& ranks = at.ranks[levels - 1];
    return static_cast<int>(std::ranges::find_if(ranks, [&](int rank) { return rank >= tree.nodes; }) -
                            ranks.begin());
}

namespace {

/// Returns the tree that the round at this position drafts.
TreeSpec tree_at(const PositionRanks& at, const TreeSpec& tree, DraftLengths& lengths) {
    TreeSpec round = lengths.next(tree, std::min(at.levels, static_cast<int>(at.ranks.size())));
    if (round.nodes == 1) return round;
    if (tree.adaptive) {
        const auto longest = std::min<std::size_t>(round.levels(), at.logprobs.size());
        const std::span<const float> drafts(at.logprobs.data(), longest);
        return clip_tree(round, tree.adaptive->limits().length(drafts));
    }
    round.nodes = std::min(round.nodes, 1 + at.candidates[round.levels() - 1]);
    return round;
}

}  // namespace

std::vector<HeadRound> rounds_of_tree(const PathRanks& text, const TreeSpec& tree) {
    std::vector<HeadRound> rounds;
    DraftLengths lengths(tree);
    int prefix = text.first_prefix;
    while (prefix < text.tokens) {
        const PositionRanks& at = text.positions[prefix - text.first_prefix];
        const int rest = text.tokens - prefix;
        const TreeSpec shape = tree_at(at, tree, lengths);
        HeadRound round;
        round.prefix = prefix;
        round.tree_nodes = shape.nodes;
        round.accepted = shape.nodes > 1 ? accepted_at(at, shape) : 0;
        round.committed = std::min(round.accepted + 1, rest);
        round.clipped = round.accepted >= rest;
        prefix += round.committed;
        lengths.update(round.tree_nodes - 1, round.accepted);
        if (round.clipped && text.cut && prefix >= text.tokens) break;
        rounds.push_back(round);
    }
    return rounds;
}

}  // namespace draftscope
