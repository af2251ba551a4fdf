#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "profiler/cost_model.h"

/// Numbers with their intervals, for tables and documents; "-" and null where there is none.
namespace draftscope::cli {

std::string number(const std::optional<double>& value, int digits);
/// "0.983 [0.956, 1.009]"
std::string with_interval(const std::optional<Estimate>& estimate, int digits = 3);
/// With its sign: "+0.012 [-0.003, +0.020]"
std::string difference(const std::optional<Estimate>& estimate);

nlohmann::json or_null(const std::optional<double>& value);
nlohmann::json or_null(const std::string& text);  ///< null for ""
nlohmann::json value_of(const std::optional<Estimate>& estimate);
/// [low, high]
nlohmann::json interval_of(const std::optional<Estimate>& estimate);
/// Those there are, by the names of `heads` in `run --json`.
nlohmann::json intervals_of(const AcceptanceCost& cost);

}  // namespace draftscope::cli
