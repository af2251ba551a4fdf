#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "profiler/run_statistics.h"

namespace draftscope::cli {

/// Phases with location, spread, quantiles and intervals; the line under the table says what was resampled.
/// `probe`: bandwidth that was measured on the run's machine, GB/s.
std::string statistics_text(const RunStatistics& statistics, const std::optional<double>& probe);
/// Times in microseconds, intervals as [low, high] or null.
nlohmann::json statistics_json(const RunStatistics& statistics);

}  // namespace draftscope::cli
