#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace draftscope {

/// Below this many samples a 90th percentile says more about the sample than about the phase: the largest one
/// exceeds the true quantile with 97.5 % probability only from here on (1 - 0.9^36).
inline constexpr std::size_t min_samples_for_p90 = 36;

/// Linear interpolation between order statistics (type 7, numpy's default). 0 without samples.
inline double sorted_quantile(std::span<const double> sorted, double q) {
    if (sorted.empty()) return 0;
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace draftscope
