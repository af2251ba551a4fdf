#include "stats/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/bisect.h"
#include "base/format_count.h"
#include "base/rng.h"

namespace draftscope {

namespace {

/// Values in ascending order, and for each unit the positions of its values.
class SortedByUnit {
  public:
    SortedByUnit(std::span<const double> values, std::span<const std::uint32_t> unit_index, std::size_t units)
        : positions_(units) {
        std::vector<std::uint32_t> order(values.size());
        std::iota(order.begin(), order.end(), 0u);
        std::sort(order.begin(), order.end(),
                  [&](std::uint32_t a, std::uint32_t b) { return values[a] < values[b]; });
        sorted_.reserve(values.size());
        for (std::uint32_t place = 0; place < order.size(); ++place) {
            sorted_.push_back(values[order[place]]);
            positions_[unit_index[order[place]]].push_back(place);
        }
        std::erase_if(positions_, [](const auto& places) { return places.empty(); });
    }

    std::size_t units() const { return positions_.size(); }

    /// Returns the median (type 7) if unit u counts times_drawn[u] times.
    double median(std::span<const std::uint32_t> times_drawn) const {
        std::uint64_t total = 0;
        for (std::size_t u = 0; u < positions_.size(); ++u) total += times_drawn[u] * positions_[u].size();
        const double low = at((total - 1) / 2, times_drawn);
        return total % 2 == 1 ? low : 0.5 * (low + at(total / 2, times_drawn));
    }

  private:
    /// Returns the value at position `before` among the drawn values.
    double at(std::uint64_t before, std::span<const std::uint32_t> times_drawn) const {
        return sorted_[bisect(0, sorted_.size() - 1, [&](std::size_t place) {
            return drawn_up_to(static_cast<std::uint32_t>(place), times_drawn) <= before;
        })];
    }
    std::uint64_t drawn_up_to(std::uint32_t place, std::span<const std::uint32_t> times_drawn) const {
        std::uint64_t sum = 0;
        for (std::size_t u = 0; u < positions_.size(); ++u) {
            if (times_drawn[u] == 0) continue;
            const auto& places = positions_[u];
            const auto end = std::upper_bound(places.begin(), places.end(), place);
            sum += times_drawn[u] * static_cast<std::uint64_t>(end - places.begin());
        }
        return sum;
    }

    std::vector<double> sorted_;
    std::vector<std::vector<std::uint32_t>> positions_;
};

}  // namespace

double sample_deviation(std::span<const double> values) {
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    const double mean = sum / static_cast<double>(values.size());
    for (const double value : values) squares += (value - mean) * (value - mean);
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::string estimate_text(const Estimate& estimate, int digits) {
    if (!estimate.interval) return fmt::format("{:.{}f}", estimate.value, digits);
    return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", estimate.value, digits, estimate.interval->low, digits,
                       estimate.interval->high, digits);
}

std::string no_interval_text(std::size_t conversations) {
    if (conversations >= min_conversations) return {};
    return fmt::format("{}: intervals need at least {}",
                       format_count(static_cast<std::int64_t>(conversations), "conversation"),
                       min_conversations);
}

std::string interval_text(std::size_t conversations) {
    if (conversations < min_conversations) return no_interval_text(conversations);
    return fmt::format("95 % intervals: bootstrap by conversation ({} of them, {} resamples)", conversations,
                       bootstrap_resamples);
}

void for_each_resample(std::size_t units, const BootstrapOptions& options,
                       const std::function<void(std::span<const std::uint32_t> times_drawn)>& use) {
    Rng rng(options.seed, units);
    std::vector<std::uint32_t> times_drawn(units);
    for (int b = 0; b < options.resamples; ++b) {
        std::fill(times_drawn.begin(), times_drawn.end(), 0u);
        for (std::size_t i = 0; i < units; ++i) ++times_drawn[rng.below(static_cast<std::uint32_t>(units))];
        use(times_drawn);
    }
}

Interval Spread::interval(double value) const {
    const double reach = student_t95(units - 1) * error;
    if (is_logarithmic) return {value * std::exp(-reach), value * std::exp(reach)};
    return {value - reach, value + reach};
}

double Spread::p_value(double value, double other) const {
    if (is_logarithmic && other <= 0) return 0;
    const double distance = is_logarithmic ? std::log(value / other) : value - other;
    if (distance == 0) return 1;
    return error > 0 ? student_two_sided(std::abs(distance) / error, units - 1) : 0;
}

std::optional<Spread> estimate_spread(double value, std::span<const double> resampled, std::size_t units,
                                      const BootstrapOptions& options) {
    if (units < min_conversations || resampled.size() < 2 ||
        resampled.size() * 2 < static_cast<std::size_t>(options.resamples))
        return std::nullopt;
    const auto is_positive = [](double one) { return one > 0; };
    Spread out;
    out.units = units;
    out.is_logarithmic = value > 0 && std::ranges::all_of(resampled, is_positive);
    std::vector<double> scaled(resampled.begin(), resampled.end());
    if (out.is_logarithmic)
        for (double& one : scaled) one = std::log(one);
    const auto n = static_cast<double>(units);
    const double resolution = options.resolution * (out.is_logarithmic ? 1.0 : std::abs(value));
    out.error = std::hypot(sample_deviation(scaled) * std::sqrt(n / (n - 1)), resolution);
    return out;
}

std::optional<Spread> bootstrap_spread(double value, std::size_t units, const ResampledStatistic& statistic,
                                       const BootstrapOptions& options) {
    if (units < min_conversations) return std::nullopt;
    std::vector<double> values;
    values.reserve(options.resamples);
    for_each_resample(units, options, [&](std::span<const std::uint32_t> times_drawn) {
        if (const auto one = statistic(times_drawn)) values.push_back(*one);
    });
    return estimate_spread(value, values, units, options);
}

Estimate bootstrap_estimate(double value, std::size_t units, const ResampledStatistic& statistic,
                            const BootstrapOptions& options) {
    Estimate out{value, {}};
    if (const auto spread = bootstrap_spread(value, units, statistic, options))
        out.interval = spread->interval(value);
    return out;
}

Estimate ratio_of_sums(const std::vector<Fraction>& units, const BootstrapOptions& options) {
    Fraction sum;
    for (const Fraction& unit : units) sum.add(unit);
    return bootstrap_estimate(sum.value().value_or(0), units.size(),
                              of_drawn_sum(units, [](const Fraction& drawn) { return drawn.value(); }),
                              options);
}

std::optional<Interval> median_interval(std::span<const double> values,
                                        std::span<const std::uint32_t> unit_index, std::size_t units,
                                        const BootstrapOptions& options) {
    if (values.empty()) return std::nullopt;
    const SortedByUnit sorted(values, unit_index, units);
    const double value = sorted.median(std::vector<std::uint32_t>(sorted.units(), 1));
    return bootstrap_estimate(
               value, sorted.units(),
               [&](std::span<const std::uint32_t> times_drawn) { return sorted.median(times_drawn); },
               options)
        .interval;
}

/// Finite series for integer degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double student_two_sided(double t, std::size_t degrees) {
    const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees)));
    const double cosine = std::cos(angle), square = cosine * cosine;
    const bool odd = degrees % 2 == 1;
    double term = odd ? cosine : 1.0, sum = 0;
    for (std::size_t k = odd ? 2 : 1; k < degrees; k += 2) {
        sum += term;
        term *= square * static_cast<double>(k) / static_cast<double>(k + 1);
    }
    const double inside =
        odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
    return 1 - inside;
}

double student_t95(std::size_t degrees) {
    double low = 0, high = 13;  // t is 12.71 for one degree
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (student_two_sided(middle, degrees) > 0.05 ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

}  // namespace draftscope
