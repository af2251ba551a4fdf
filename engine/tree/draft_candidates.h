#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "capture/rows.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// The candidates that a draft tree was chosen from. Those after one node are adjacent, the best first.
class DraftCandidates {
  public:
    /// What a drafter proposed, level by level. A missing candidate has a negative token.
    struct Pool {
        std::span<const TokenId> tokens;
        std::span<const float> logprobs;
        std::span<const int> parents;  ///< candidates; -1 = the root
        int topk = 0;                  ///< maximum number after one node
    };

    /// Forgets the candidates and keeps the memory.
    void clear() { nodes_.clear(); }
    /// Reserves memory for trees of `nodes` nodes and their `candidates`.
    void reserve(std::size_t nodes, std::size_t candidates);
    /// Finds the candidates of the tree's nodes. The pool must stay valid as long as set_rank() is called.
    void find(const DraftTree& tree, const Pool& pool);
    /// Sets where the drafter had the target's token after the row's node, if known.
    void set_rank(NodeRow& row) const;
    /// Returns the candidate that became the node; -1 = the root.
    int place(int node) const { return nodes_[node].place; }

  private:
    struct Node {
        int place = -1, first = 0, count = 0;
    };
    Pool pool_;
    std::vector<Node> nodes_;
    std::vector<Node> after_;  ///< by candidate + 1: the candidates after it
};

}  // namespace draftscope
