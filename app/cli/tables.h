#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"

namespace draftscope::cli {

/// Right-aligned columns except the first; a header row, then the rows.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

/// Nobody reads faster than the machine: beyond so many times the probe's rate, the probe was made while
/// other work held the memory, and what rests on it is void.
inline constexpr double fastest_credible_read = 1.1;
/// Says so, a whole line.
std::string void_probe_text();
/// Of a phase: "7.1", "< 0.1", "-" where bytes are unknown; and its part of what `doctor` measured, in
/// percent, or "void".
std::string bandwidth_text(double gb_per_s);
std::string of_probe_text(double gb_per_s, const std::optional<double>& probe);
/// Tables of one run for people, all derived from the snapshot: every column, and what matters alone.
std::string phase_table_text(const Snapshot& snapshot, RowId run_id);
std::string phase_summary_text(const Snapshot& snapshot, RowId run_id);
/// "2 warm-up, 3 paused, 8 calibration steps are excluded", or "" when none were.
std::string excluded_text(const Snapshot& snapshot, RowId run_id);

/// How the text of a run that is not the target's own, token for token, came to be; a whole line, "" for
/// others.
std::string verify_text(const RunRow& run);

/// The same as JSON, with the keys of `run --json`.
nlohmann::json phases_json(const Snapshot& snapshot, RowId run_id);
nlohmann::json losses_json(const Snapshot& snapshot, RowId run_id);
/// A whole document for stdout; bytes that are not UTF-8 (names from files) become U+FFFD.
std::string document_text(const nlohmann::json& document);
nlohmann::json totals_json(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
