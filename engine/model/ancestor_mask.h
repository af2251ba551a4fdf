#pragma once

#include <cstdint>
#include <vector>

namespace draftscope {

/// T x T ancestor-or-self relation of a draft tree, one row of ceil(T/64) words per node; bit j of row i =
/// node j is an ancestor of node i or i itself. Nodes are in topological order (parent before child), root =
/// node 0.
class AncestorMask {
  public:
    AncestorMask() = default;
    /// parents[0] = -1, 0 <= parents[i] < i for i > 0.
    static AncestorMask from_parents(const std::vector<int>& parents);
    /// The same into this mask, whose memory is kept.
    void build(const std::vector<int>& parents);
    /// No nodes, with memory for `nodes` of them.
    void clear(int nodes);

    int nodes() const { return nodes_; }
    int words_per_row() const { return static_cast<int>(words_); }
    const std::uint64_t* row(int node) const {
        return bits_.data() + static_cast<std::size_t>(node) * words_;
    }
    bool test(int node, int ancestor) const {
        return (row(node)[ancestor / 64] >> (ancestor % 64) & 1u) != 0;
    }
    /// Ancestors of `node` in depth order, itself last.
    void path(int node, std::vector<int>& out) const;

  private:
    int nodes_ = 0;
    std::size_t words_ = 0;
    std::vector<std::uint64_t> bits_;
};

}  // namespace draftscope
