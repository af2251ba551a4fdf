#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "stats/run_statistics.h"

namespace draftscope::cli {

/// Returns the table of phases with location, spread, quantiles and intervals, and a line about the
/// resampling. `probe` is the bandwidth measured on the run's machine, in GB/s.
std::string statistics_text(const RunStatistics& statistics, const std::optional<double>& probe);
/// Returns the same data as JSON: times in microseconds, intervals as [low, high] or null.
nlohmann::json statistics_json(const RunStatistics& statistics);

}  // namespace draftscope::cli
