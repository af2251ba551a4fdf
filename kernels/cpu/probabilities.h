#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "kernels/cpu/row_ops.h"

/// Steps that sampling from rows and from residuals share.
namespace draftscope::kernels {

/// Calls `visit` with the sum of each block of probabilities, in order.
template <typename Visit>
void visit_block_sums(std::span<const float> probs, Visit visit) {
    for (std::size_t first = 0; first < probs.size(); first += probability_block)
        visit(sum_probabilities(probs.subspan(first, std::min(probability_block, probs.size() - first))));
}

/// Returns the block in which the cumulative weight reaches `target`, and the weight before it. The last
/// block with any weight takes the rounding remainder.
template <typename Sum>
std::pair<std::size_t, double> find_block(std::span<const Sum> block_sums, double target) {
    std::size_t chosen = 0;
    double seen = 0, before = 0;
    for (std::size_t b = 0; b < block_sums.size(); ++b) {
        if (block_sums[b] > 0 && seen <= target) {
            chosen = b;
            before = seen;
        }
        seen += static_cast<double>(block_sums[b]);
    }
    return {chosen, before};
}

/// The smallest logit that a row's mask keeps; null = no mask.
inline float min_logit_of(const float* min_logit, std::int64_t row) {
    return min_logit == nullptr ? -std::numeric_limits<float>::infinity() : min_logit[row];
}

}  // namespace draftscope::kernels
