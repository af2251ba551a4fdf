#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "stats/cost_model.h"

/// Formats numbers and their intervals for tables and JSON. Missing values are "-" and null.
namespace draftscope::cli {

std::string number(const std::optional<double>& value, int digits);
/// Returns "0.983 [0.956, 1.009]".
std::string with_interval(const std::optional<Estimate>& estimate, int digits = 3);
/// Returns a signed value: "+0.012 [-0.003, +0.020]".
std::string difference(const std::optional<Estimate>& estimate);

nlohmann::json or_null(const std::optional<double>& value);
nlohmann::json or_null(const std::string& text);  ///< null for ""
nlohmann::json value_json(const std::optional<Estimate>& estimate);
/// Returns {value, interval}, or null.
nlohmann::json estimate_json(const std::optional<Estimate>& estimate);
/// Returns [low, high].
nlohmann::json estimate_interval_json(const std::optional<Estimate>& estimate);
/// Returns the intervals that exist, under the names used by `heads` in `run --json`.
nlohmann::json intervals_json(const AcceptanceCost& cost);

}  // namespace draftscope::cli
