#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "capture/capture.h"
#include "profiler/head_costs.h"

namespace draftscope::cli {

/// Every head of a run: what it accepted and covered, then against the full head the quantities of the
/// acceptance-cost model with their intervals (profiler/head_costs.h). "" without heads.
std::string head_table_text(const Snapshot& snapshot, RowId run_id);
/// Of it the first two tables, without what heads read.
std::string head_summary_text(const Snapshot& snapshot, RowId run_id);
/// The same, as the array `heads` of `run --json`.
nlohmann::json heads_json(const Snapshot& snapshot, RowId run_id);

/// What a head, or a method with one, reads in a round.
struct NamedReads {
    std::string name;
    HeadReads reads;
};
/// What heads read and what the probes explain of T_head by it; "" without heads. `first` is the names'
/// column. Says so where a head read faster than the probe, which was then made while others used the memory.
std::string reads_table(std::string first, std::span<const NamedReads> heads);
nlohmann::json reads_json(const HeadReads& reads);

}  // namespace draftscope::cli
