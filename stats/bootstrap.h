#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// 95 % intervals by resampling conversations. All intervals of the program use these functions. All turns of
/// a conversation form one unit: rounds and turns of one text are alike, so resampling them separately would
/// give too narrow intervals. docs/decisions/0022 describes the method and its measured coverage.
namespace draftscope {

/// With fewer conversations no interval is given.
inline constexpr std::size_t min_conversations = 6;
inline constexpr int bootstrap_resamples = 1000;

struct Interval {
    double low = 0, high = 0;
    bool contains(double value) const { return low <= value && value <= high; }
};
/// A value with its interval.
struct Estimate {
    double value = 0;
    std::optional<Interval> interval;  ///< 95 %; absent with too few conversations
};

/// A ratio of sums.
struct Fraction {
    double above = 0, below = 0;
    void add(const Fraction& other, double times = 1) {
        above += times * other.above;
        below += times * other.below;
    }
    /// Absent if the denominator is not above 0.
    std::optional<double> value() const { return below > 0 ? std::optional(above / below) : std::nullopt; }
};

struct BootstrapOptions {
    int resamples = bootstrap_resamples;
    std::uint64_t seed = 20260519;
    /// Relative change of the value by one round. The interval is at least that wide.
    double resolution = 0;
};

/// Returns "1.52 [1.41, 1.63]".
std::string estimate_text(const Estimate& estimate, int digits);
/// Returns why there are no intervals ("1 conversation: intervals need at least 6"); "" if there are.
std::string no_interval_text(std::size_t conversations);
/// Returns how the intervals were computed, or no_interval_text(). Example: "95 % intervals: bootstrap by
/// conversation (12 of them, 1000 resamples)".
std::string interval_text(std::size_t conversations);

/// Calls `use` once per resample with the number of times each unit was drawn. These `units` numbers add up
/// to `units`. Equal options give equal draws.
void for_each_resample(std::size_t units, const BootstrapOptions& options,
                       const std::function<void(std::span<const std::uint32_t> times_drawn)>& use);

/// Spread of a statistic over resamples of its units.
struct Spread {
    std::size_t units = 0;
    double error = 0;             ///< standard error; of the logarithm if `is_logarithmic`
    bool is_logarithmic = false;  ///< set if the value and all resamples are above zero

    /// Returns value -+ t error, with Student's t for units - 1 degrees of freedom, on the scale of
    /// `is_logarithmic`.
    Interval interval(double value) const;
    /// Returns the two-sided probability of a value this far from `other` if `other` were true. It is under
    /// 0.05 if the interval does not contain `other`.
    double p_value(double value, double other) const;
};
/// Returns the standard deviation of the resampled values times sqrt(n / (n - 1)), combined with the
/// resolution. Absent below `min_conversations` units, or if fewer than half of the resamples had a value.
std::optional<Spread> estimate_spread(double value, std::span<const double> resampled, std::size_t units,
                                      const BootstrapOptions& options = {});

/// A statistic over drawn units; nullopt if it has no value for a draw.
using ResampledStatistic = std::function<std::optional<double>(std::span<const std::uint32_t> times_drawn)>;
/// Returns the statistic whose value is `value` of the sum of the drawn units, which have add(unit, times).
/// The units must outlive it.
template <typename Unit, typename Value>
ResampledStatistic of_drawn_sum(const std::vector<Unit>& units, Value value) {
    return [&units, value](std::span<const std::uint32_t> times_drawn) -> std::optional<double> {
        Unit sum{};
        for (std::size_t u = 0; u < units.size(); ++u) sum.add(units[u], times_drawn[u]);
        return value(sum);
    };
}
std::optional<Spread> bootstrap_spread(double value, std::size_t units, const ResampledStatistic& statistic,
                                       const BootstrapOptions& options = {});

/// Returns the value with its interval.
Estimate bootstrap_estimate(double value, std::size_t units, const ResampledStatistic& statistic,
                            const BootstrapOptions& options = {});

/// Returns the ratio of the units' sums with its interval; 0 without a denominator.
Estimate ratio_of_sums(const std::vector<Fraction>& units, const BootstrapOptions& options = {});

/// Returns the interval of the median of `values`; value i belongs to unit `unit_index[i]` (< units). Units
/// without values don't count.
std::optional<Interval> median_interval(std::span<const double> values,
                                        std::span<const std::uint32_t> unit_index, std::size_t units,
                                        const BootstrapOptions& options = {});

/// Returns the standard deviation of a sample of at least two values.
double sample_deviation(std::span<const double> values);
/// Returns P(|T| > t) of Student's distribution.
double student_two_sided(double t, std::size_t degrees);
/// Returns the t with P(|T| > t) = 5 %.
double student_t95(std::size_t degrees);

}  // namespace draftscope
