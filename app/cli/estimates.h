#pragma once

#include <optional>
#include <string>

#include "base/fields.h"
#include "stats/cost_model.h"

namespace draftscope {

/// An interval is [low, high] in JSON, and an estimate is its value.
inline void to_json(nlohmann::json& out, const Interval& interval) {
    out = {interval.low, interval.high};
}
inline void to_json(nlohmann::json& out, const Estimate& estimate) {
    out = estimate.value;
}

}  // namespace draftscope

/// Formats numbers and their intervals for tables and JSON. Missing values are "-" and null.
namespace draftscope::cli {

std::string number(const std::optional<double>& value, int digits);
/// Returns "0.983 [0.956, 1.009]".
std::string with_interval(const std::optional<Estimate>& estimate, int digits = 3);
/// Returns a signed value: "+0.012 [-0.003, +0.020]".
std::string difference(const std::optional<Estimate>& estimate);

nlohmann::json or_null(const std::optional<double>& value);
nlohmann::json or_null(const std::string& text);  ///< null for ""
/// Returns {value, interval}, or null.
nlohmann::json estimate_json(const std::optional<Estimate>& estimate);
/// Returns [low, high].
nlohmann::json estimate_interval_json(const std::optional<Estimate>& estimate);
/// Writes the intervals of estimates, as `speedup_interval`, and both the values and the intervals.
template <typename Group>
constexpr auto intervals_of(Group group) {
    return as(estimate_interval_json, group, "_interval");
}
template <typename Group>
constexpr auto with_intervals(Group group) {
    return join(group, intervals_of(group));
}
/// The parts of the acceptance-cost model, of which some are absent, and their JSON keys.
inline constexpr auto cost_fields = join(
    DS_FIELDS(AcceptanceCost, rho_tau, nu, kappa), field("predicted_speedup", &AcceptanceCost::predicted),
    field("measured_speedup", &AcceptanceCost::measured), DS_FIELDS(AcceptanceCost, unexplained));
/// Returns the intervals that exist, under the names used by `heads` in `run --json`.
nlohmann::json intervals_json(const AcceptanceCost& cost);

}  // namespace draftscope::cli
