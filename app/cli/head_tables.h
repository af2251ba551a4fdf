#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "capture/capture.h"
#include "stats/head_costs.h"

namespace draftscope::cli {

/// Returns help for all head strategies: paper, required files, parameters. Values that no paper states are
/// marked "our default".
std::string head_help();

/// Returns the tables of a run's heads; "" without heads. Contents: acceptance and coverage, the
/// acceptance-cost model relative to the full head with intervals (stats/head_costs.h), memory
/// traffic.
std::string head_table_text(const Snapshot& snapshot, RowId run_id);
/// Returns the first two of these tables.
std::string head_summary_text(const Snapshot& snapshot, RowId run_id);
/// Returns the array `heads` of `run --json`.
nlohmann::json heads_json(const Snapshot& snapshot, RowId run_id);

/// Returns the size of one row's shortlist, and what a call reads if it is more: "6255 (reads 14256)".
/// Without the former, returns the latter.
std::string size_text(std::optional<double> row_tokens, double active_rows);
/// Explains size_text() and what covers, if a head's rows have shortlists of their own; else "".
std::string size_note(bool own_shortlists);

/// Memory traffic per round of a head, or of a method with a head.
struct NamedReads {
    std::string name;
    HeadTraffic reads;
};
/// Returns the table of heads' memory traffic, with the time that the probed bandwidth predicts for it; ""
/// without heads. `first` is the header of the name column. If a head read faster than the probe, the table
/// says that the probe is invalid: other work used the memory during the probe.
std::string reads_table(std::string first, std::span<const NamedReads> heads);
nlohmann::json reads_json(const HeadTraffic& reads);

}  // namespace draftscope::cli
