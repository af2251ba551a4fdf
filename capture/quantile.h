#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace draftscope {

/// Minimum number of samples for a 90th percentile. With fewer samples, the largest one exceeds the true
/// quantile with less than 97.5 % probability (1 - 0.9^36).
inline constexpr std::size_t min_samples_for_p90 = 36;

/// Minimum number of samples for a 99th percentile (1 - 0.99^368).
inline constexpr std::size_t min_samples_for_p99 = 368;

/// Factor from the median absolute deviation to the standard deviation of normal samples.
inline constexpr double gauss_mad = 1.4826;

/// Interpolates linearly between order statistics (type 7, numpy's default). Returns 0 without samples.
inline double sorted_quantile(std::span<const double> sorted, double q) {
    if (sorted.empty()) return 0;
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// As sorted_quantile(), for values in any order, which it rearranges. Takes linear time.
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
