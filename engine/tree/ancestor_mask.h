#pragma once

#include <cstdint>
#include <vector>

#include "base/numel.h"

namespace draftscope {

/// The ancestor-or-self relation of a draft tree with T nodes. Each node has one row of ceil(T/64) words; bit
/// j of row i is set if node j is node i or one of its ancestors. Nodes are in topological order (parents
/// before children); node 0 is the root.
class AncestorMask {
  public:
    AncestorMask() = default;
    /// `parents[0]` is -1, and 0 <= parents[i] < i for i > 0.
    static AncestorMask from_parents(const std::vector<int>& parents);
    /// Like from_parents(), but reuses this mask's memory.
    void build(const std::vector<int>& parents);
    /// Removes all nodes and reserves memory for `nodes` nodes.
    void clear(int nodes);

    int nodes() const { return nodes_; }
    int words_per_row() const { return static_cast<int>(words_per_row_); }
    const std::uint64_t* row(int node) const { return bits_.data() + numel(node, words_per_row_); }
    bool test(int node, int ancestor) const {
        return (row(node)[ancestor / 64] >> (ancestor % 64) & 1u) != 0;
    }
    /// Writes the ancestors of `node` in depth order, followed by `node` itself.
    void path(int node, std::vector<int>& out) const;

  private:
    int nodes_ = 0;
    std::size_t words_per_row_ = 0;
    std::vector<std::uint64_t> bits_;
};

}  // namespace draftscope
