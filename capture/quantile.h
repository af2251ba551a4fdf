#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace draftscope {

/// Below this many samples a 90th percentile says more about the sample than about the phase: the largest one
/// exceeds the true quantile with 97.5 % probability only from here on (1 - 0.9^36).
inline constexpr std::size_t min_samples_for_p90 = 36;

/// The same for the 99th percentile (1 - 0.99^368).
inline constexpr std::size_t min_samples_for_p99 = 368;

/// A median absolute deviation times this is the standard deviation of normal samples.
inline constexpr double gauss_mad = 1.4826;

/// Linear interpolation between order statistics (type 7, numpy's default). 0 without samples.
inline double sorted_quantile(std::span<const double> sorted, double q) {
    if (sorted.empty()) return 0;
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// The same of values in any order, which are rearranged: linear in their number.
inline double quantile(std::span<double> values, double q) {
    if (values.empty()) return 0;
    const double at = q * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(low);
    std::nth_element(values.begin(), middle, values.end());
    if (low + 1 == values.size()) return *middle;
    const double high = *std::min_element(middle + 1, values.end());
    return *middle + (at - static_cast<double>(low)) * (high - *middle);
}

}  // namespace draftscope
