#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// 95 % intervals by resampling conversations, the same for every number that the program gives an interval.
/// All turns of a conversation are one unit: rounds and turns of one text are alike, so single ones would
/// give intervals that are too narrow. docs/decisions/0022 has the method and how often its intervals hold.
namespace draftscope {

/// Fewer conversations give no interval.
inline constexpr std::size_t min_conversations = 6;
inline constexpr int bootstrap_resamples = 1000;

struct Interval {
    double low = 0, high = 0;
    bool holds(double value) const { return low <= value && value <= high; }
};
struct Estimate {
    double value = 0;
    std::optional<Interval> interval;  ///< 95 %; absent with too few conversations
};

struct BootstrapOptions {
    int resamples = bootstrap_resamples;
    std::uint64_t seed = 20260519;
    /// Part of the value that one round more or less makes: no count of rounds is known more closely.
    double resolution = 0;
};

/// Why there are no intervals: "1 conversation: intervals need at least 6"; "" where there may be.
std::string no_interval_text(std::size_t conversations);
/// How intervals of so many conversations were made: "95 % intervals: bootstrap by conversation (12 of them,
/// 1000 resamples)"; or no_interval_text().
std::string interval_text(std::size_t conversations);

/// Calls `use` with how often each unit was drawn (`units` numbers that add up to `units`), once for each
/// resample. Same options, same draws.
void for_each_resample(std::size_t units, const BootstrapOptions& options,
                       const std::function<void(std::span<const std::uint32_t> times_drawn)>& use);

/// How far a statistic of so many units spreads over resamples.
struct Spread {
    std::size_t units = 0;
    double error = 0;           ///< standard error, of the logarithm where `of_logarithm`
    bool of_logarithm = false;  ///< the value and all resamples are above zero

    /// value -+ t error with Student's t for units - 1 degrees of freedom; on the scale of `of_logarithm`.
    Interval interval(double value) const;
    /// Two-sided probability of a value this far from `other` if `other` were true: under 0.05 where the
    /// interval does not hold it.
    double p_value(double value, double other) const;
};
/// Standard deviation of the resampled values times sqrt(n / (n - 1)), joined with the resolution. Absent for
/// fewer than `min_conversations` units and when fewer than half of the resamples had a value.
std::optional<Spread> spread_of(double value, std::span<const double> resampled, std::size_t units,
                                const BootstrapOptions& options = {});

/// `statistic` may have no value for a draw.
using ResampledStatistic = std::function<std::optional<double>(std::span<const std::uint32_t> times_drawn)>;
std::optional<Spread> bootstrap_spread(double value, std::size_t units, const ResampledStatistic& statistic,
                                       const BootstrapOptions& options = {});

/// The value with its interval.
Estimate bootstrap_estimate(double value, std::size_t units, const ResampledStatistic& statistic,
                            const BootstrapOptions& options = {});

/// Interval of the median of `values`, value i belonging to unit `unit_of[i]` (< units). Units without a
/// value do not count.
std::optional<Interval> median_interval(std::span<const double> values,
                                        std::span<const std::uint32_t> unit_of, std::size_t units,
                                        const BootstrapOptions& options = {});

/// P(|T| > t) of Student's distribution.
double student_two_sided(double t, std::size_t degrees);
/// The t beyond which 5 % lie, both sides together.
double student_t95(std::size_t degrees);

}  // namespace draftscope
