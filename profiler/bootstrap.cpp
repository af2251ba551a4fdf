#include "profiler/bootstrap.h"

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace draftscope {

namespace {

/// Values looked at in all resamples together: half a second or so.
constexpr std::size_t median_work = 200'000'000;
constexpr int fewest_resamples = 200;

/// The median (type 7) of sorted values of which unit u counts times_drawn[u] times.
std::optional<double> drawn_median(std::span<const double> sorted, std::span<const std::uint32_t> unit_of,
                                   std::span<const std::uint32_t> times_drawn) {
    std::uint64_t total = 0;
    for (const std::uint32_t unit : unit_of) total += times_drawn[unit];
    if (total == 0) return std::nullopt;
    const std::uint64_t low_at = (total - 1) / 2, high_at = total / 2;
    std::uint64_t seen = 0;
    double low = 0;
    bool have_low = false;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        seen += times_drawn[unit_of[i]];
        if (!have_low && seen > low_at) {
            low = sorted[i];
            have_low = true;
        }
        if (seen > high_at) return 0.5 * (low + sorted[i]);
    }
    return std::nullopt;
}

}  // namespace

std::optional<Interval> percentile_interval(std::vector<double>& values, int resamples) {
    if (values.empty() || values.size() * 2 < static_cast<std::size_t>(resamples)) return std::nullopt;
    std::sort(values.begin(), values.end());
    const auto at = [&](double q) {
        return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
    };
    return Interval{at(0.025), at(0.975)};
}

std::optional<Interval> bootstrap_interval(std::size_t units, const ResampledStatistic& statistic,
                                           const BootstrapOptions& options) {
    if (units < std::max<std::size_t>(options.least_units, 1)) return std::nullopt;
    Rng rng(options.seed, units);
    std::vector<std::uint32_t> times_drawn(units);
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(options.resamples));
    for (int b = 0; b < options.resamples; ++b) {
        std::fill(times_drawn.begin(), times_drawn.end(), 0u);
        for (std::size_t i = 0; i < units; ++i) ++times_drawn[rng.below(static_cast<std::uint32_t>(units))];
        if (const auto value = statistic(times_drawn)) values.push_back(*value);
    }
    return percentile_interval(values, options.resamples);
}

std::optional<Interval> median_interval(std::span<const double> values,
                                        std::span<const std::uint32_t> unit_of, std::size_t units,
                                        const BootstrapOptions& options) {
    if (values.empty()) return std::nullopt;
    std::vector<std::uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return values[a] < values[b]; });
    std::vector<double> sorted(values.size());
    std::vector<std::uint32_t> sorted_units(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        sorted[i] = values[order[i]];
        sorted_units[i] = unit_of[order[i]];
    }
    BootstrapOptions bounded = options;
    bounded.resamples = std::min(
        options.resamples,
        std::max(fewest_resamples, static_cast<int>(median_work / std::max<std::size_t>(values.size(), 1))));
    return bootstrap_interval(
        units,
        [&](std::span<const std::uint32_t> times_drawn) {
            return drawn_median(sorted, sorted_units, times_drawn);
        },
        bounded);
}

}  // namespace draftscope
