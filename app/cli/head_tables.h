#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "profiler/head_costs.h"

namespace draftscope::cli {

/// Every head of a run: what it accepted and covered, then against the full head the quantities of the
/// acceptance-cost model with their intervals (profiler/head_costs.h). "" without heads.
std::string head_table_text(const Snapshot& snapshot, RowId run_id);
/// The same, as the array `heads` of `run --json`.
nlohmann::json heads_json(const Snapshot& snapshot, RowId run_id);

/// What heads read and what the probes explain of T_head by it: a table of rows that begin with a name and
/// go on with the cells of one head; "" without rows.
std::string reads_table(std::string first, std::vector<std::vector<std::string>> rows);
std::vector<std::string> reads_cells(const HeadReads& reads);
nlohmann::json reads_json(const HeadReads& reads);

}  // namespace draftscope::cli
