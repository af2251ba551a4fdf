#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "stats/run_statistics.h"

namespace draftscope::cli {

/// Formats a table with a header. Columns are right-aligned, except the first.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

/// Returns a phase's name.
std::string phase_name(int id);

/// Formats tokens per second of counted steps: "7.1". Without counted steps: "-".
std::string rate_text(double tokens_per_second);
/// Largest credible ratio of a measured bandwidth to the probe. Above it, other work used the memory during
/// the probe, and values relative to the probe are void.
inline constexpr double max_credible_probe_ratio = 1.1;
/// Returns the line that explains a void probe.
std::string void_probe_text();
/// Format a phase's bandwidth ("7.1", "< 0.1", "-" if its bytes are unknown) and its percentage of the
/// bandwidth that doctor measured, or "void".
std::string bandwidth_text(double gb_per_s);
std::string probe_share_text(double gb_per_s, const std::optional<double>& probe);
/// Returns the table of a run's phases, derived from the snapshot.
std::string phase_table_text(const Snapshot& snapshot, RowId run_id);
/// Returns one line with the phases that take most of a step: share and median time.
std::string phase_summary_text(const Snapshot& snapshot, RowId run_id);
/// Returns "2 warm-up, 3 paused steps excluded from times and speeds", or "" if none were.
std::string excluded_text(const Snapshot& snapshot, RowId run_id);

/// Returns a line with the run's target, drafter, head, tree, precision, threads and tier.
std::string setup_text(const RunRow& run);
/// Prints a line for each loss of a run.
void print_losses(const Snapshot& snapshot, RowId run_id);
/// Returns a line that explains why a run's text is not the target's own, token for token. "" for exact runs.
std::string verify_text(const RunRow& run);

/// Return the parts of `run --json` with these names.
nlohmann::json phases_json(const Snapshot& snapshot, RowId run_id);
nlohmann::json losses_json(const Snapshot& snapshot, RowId run_id);
/// Prints a document on stdout. Bytes that are not UTF-8 (names from files) become U+FFFD.
void print_document(const nlohmann::json& document);
nlohmann::json totals_json(const Snapshot& snapshot, RowId run_id);

/// Returns one line: time to first token, and the latency between tokens; "" without counted steps.
std::string latency_text(const Latency& latency);
nlohmann::json latency_json(const Latency& latency);
/// Returns the tables of acceptance and speed by length of the context and by position in the text; "" if
/// neither spans two bins.
std::string position_text(const Snapshot& snapshot, RowId run_id);
/// Returns `by_context` and `by_position`, lists of bins.
nlohmann::json position_json(const Snapshot& snapshot, RowId run_id);

/// Returns one line: "speed-up 1.25x [1.18, 1.31] against autoregressive decoding: ...", with the prompts it
/// covers. "" if the capture has no baseline.
std::string speedup_text(const Snapshot& snapshot, RowId run_id);
/// Returns `baseline` of `run --json` and `stats --json`. The values are null without a baseline.
nlohmann::json speedup_json(const Snapshot& snapshot, RowId run_id);

/// Returns one sentence with a run's main result and its confidence interval. The result is the speed
/// relative to plain decoding if the capture has a baseline, else relative to the full head, else absolute.
/// A second line says why there is no comparison with the full head. Ends with a line feed; "" for a run
/// without rounds.
std::string finding_text(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
