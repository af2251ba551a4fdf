#include "engine/tree/ancestor_mask.h"

#include <bit>
#include <cassert>

namespace draftscope {

AncestorMask AncestorMask::from_parents(const std::vector<int>& parents) {
    AncestorMask mask;
    mask.build(parents);
    return mask;
}

void AncestorMask::build(const std::vector<int>& parents) {
    nodes_ = static_cast<int>(parents.size());
    words_per_row_ = (parents.size() + 63) / 64;
    bits_.assign(parents.size() * words_per_row_, 0);
    for (std::size_t node = 0; node < parents.size(); ++node) {
        std::uint64_t* node_bits = bits_.data() + node * words_per_row_;
        const int parent = parents[node];
        assert(node == 0 ? parent == -1 : parent >= 0 && parent < static_cast<int>(node));
        if (parent >= 0) {
            const std::uint64_t* above = row(parent);
            // A parent's ancestors all have smaller indices than the parent.
            for (std::size_t w = 0; w <= static_cast<std::size_t>(parent) / 64; ++w) node_bits[w] = above[w];
        }
        node_bits[node / 64] |= std::uint64_t{1} << (node % 64);
    }
}

void AncestorMask::clear(int nodes) {
    nodes_ = 0;
    const std::size_t capacity = nodes;
    bits_.reserve(capacity * ((capacity + 63) / 64));
}

void AncestorMask::path(int node, std::vector<int>& out) const {
    out.clear();
    const std::uint64_t* words = row(node);
    // In topological order, ascending indices along a path are in depth order.
    for (std::size_t w = 0; w <= static_cast<std::size_t>(node) / 64; ++w) {
        for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
            out.push_back(static_cast<int>(w) * 64 + std::countr_zero(bits));
        }
    }
}

}  // namespace draftscope
