#include "engine/tree/draft_candidates.h"

#include <algorithm>

namespace draftscope {

void DraftCandidates::reserve(std::size_t nodes, std::size_t candidates) {
    nodes_.reserve(nodes);
    after_.reserve(candidates + 1);
}

void DraftCandidates::find(const DraftTree& tree, const Pool& pool) {
    pool_ = pool;
    after_.assign(pool.tokens.size() + 1, {});
    for (int i = 0; i < static_cast<int>(pool.tokens.size()); ++i) {
        if (pool.tokens[i] < 0) continue;
        Node& node = after_[pool.parents[i] + 1];
        if (node.count == 0) node.first = i;
        // A device may draft twice from one node, where others are missing.
        if (node.first + node.count == i && node.count < pool.topk) ++node.count;
    }
    nodes_.assign(1, after_[0]);
    for (int i = 1; i < tree.size(); ++i) {
        const Node& above = nodes_[tree.parents[i]];
        const auto begin = pool.tokens.begin() + above.first, end = begin + above.count;
        const auto found = std::find(begin, end, tree.tokens[i]);
        const int place = found == end ? -1 : static_cast<int>(found - pool.tokens.begin());
        Node& node = nodes_.emplace_back();
        if (place >= 0) node = after_[place + 1];
        node.place = place;
    }
}

void DraftCandidates::set_rank(NodeRow& row) const {
    if (row.target_token_id == no_token || row.node >= static_cast<int>(nodes_.size())) return;
    const Node& node = nodes_[row.node];
    if (node.count == 0) return;
    const auto after = pool_.tokens.subspan(node.first, node.count);
    row.target_draft_rank = static_cast<int>(std::ranges::find(after, row.target_token_id) - after.begin());
    if (*row.target_draft_rank < node.count)
        row.target_draft_logprob = pool_.logprobs[node.first + *row.target_draft_rank];
}

}  // namespace draftscope
