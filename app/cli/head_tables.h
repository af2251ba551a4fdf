#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capture/capture.h"

namespace draftscope::cli {

/// Every head of a run: what it accepted and covered, then against the full head the quantities of the
/// acceptance-cost model with their intervals (profiler/head_costs.h). "" without heads.
std::string head_table_text(const Snapshot& snapshot, RowId run_id);
/// The same, as the array `heads` of `run --json`.
nlohmann::json heads_json(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
