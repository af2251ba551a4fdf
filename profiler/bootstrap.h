#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

/// Percentile bootstrap over resampling units, the same for every number that the program gives an interval.
/// A unit is what varies on its own: a prompt, or a block of consecutive steps; single steps of a decode are
/// autocorrelated and would give intervals that are too narrow.
namespace draftscope {

struct Interval {
    double low = 0, high = 0;
    bool holds(double value) const { return low <= value && value <= high; }
};
struct Estimate {
    double value = 0;
    std::optional<Interval> interval;  ///< 95 %, percentile bootstrap; absent with too few units
};

struct BootstrapOptions {
    int resamples = 2000;
    std::size_t least_units = 6;  ///< fewer give no interval
    std::uint64_t seed = 20260519;
};

/// 2.5th to 97.5th percentile of the resampled values (which are sorted); absent when fewer than half of the
/// resamples had one.
std::optional<Interval> percentile_interval(std::vector<double>& values, int resamples);

/// `statistic` gets how often each unit was drawn (`units` numbers that add up to `units`) and may have no
/// value for a draw. Same options, same interval.
using ResampledStatistic = std::function<std::optional<double>(std::span<const std::uint32_t> times_drawn)>;
std::optional<Interval> bootstrap_interval(std::size_t units, const ResampledStatistic& statistic,
                                           const BootstrapOptions& options = {});

/// Interval of the median of `values`, value i belonging to unit `unit_of[i]` (< units). Linear in the values
/// for each resample; with very many values fewer resamples are taken, never under 200.
std::optional<Interval> median_interval(std::span<const double> values,
                                        std::span<const std::uint32_t> unit_of, std::size_t units,
                                        const BootstrapOptions& options = {});

}  // namespace draftscope
