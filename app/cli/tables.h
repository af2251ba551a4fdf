#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "capture/capture.h"
#include "stats/cost_model.h"
#include "stats/run_statistics.h"

namespace draftscope {

/// An interval is [low, high] in JSON, and an estimate is its value.
inline void to_json(nlohmann::json& out, const Interval& interval) {
    out = {interval.low, interval.high};
}
inline void to_json(nlohmann::json& out, const Estimate& estimate) {
    out = estimate.value;
}

}  // namespace draftscope

/// Formats numbers, and the tables and JSON of runs. Missing values are "-" and null.
namespace draftscope::cli {

std::string number(const std::optional<double>& value, int digits);
std::string positive(double value, int digits);    ///< "-" if it is not above 0
std::string or_dash(const std::string& text);      ///< "-" for ""
std::string temperature_text(double temperature);  ///< "greedy" for 0, "T=0.8"
/// Returns "0.983 [0.956, 1.009]".
std::string with_interval(const std::optional<Estimate>& estimate, int digits = 3);
/// Returns "1.25x [1.18, 1.31]".
std::string times_text(const Estimate& ratio);
/// Returns a signed value: "+0.012 [-0.003, +0.020]".
std::string difference(const std::optional<Estimate>& estimate);

nlohmann::json or_null(const std::optional<double>& value);
nlohmann::json or_null(const std::string& text);  ///< null for ""
/// Returns {value, interval}, or null.
nlohmann::json estimate_json(const std::optional<Estimate>& estimate);
/// Returns [low, high].
nlohmann::json estimate_interval_json(const std::optional<Estimate>& estimate);
/// Writes the intervals of estimates, as `speedup_interval`, and both the values and the intervals.
template <typename Group>
constexpr auto intervals_of(Group group) {
    return as(estimate_interval_json, group, "_interval");
}
template <typename Group>
constexpr auto with_intervals(Group group) {
    return join(group, intervals_of(group));
}
/// The parts of the acceptance-cost model, of which some are absent, and their JSON keys.
inline constexpr auto cost_fields = join(
    DS_FIELDS(AcceptanceCost, rho_tau, nu, kappa), field("predicted_speedup", &AcceptanceCost::predicted),
    field("measured_speedup", &AcceptanceCost::measured), DS_FIELDS(AcceptanceCost, unexplained));
/// Returns the intervals that exist, under the names used by `heads` in `run --json`.
nlohmann::json intervals_json(const AcceptanceCost& cost);

/// Formats a table with a header. Columns are right-aligned, except the first.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

/// Returns a phase's name.
std::string phase_name(int id);

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

/// Returns what `run --json` and `stats --json` have in common: totals, baseline, latency, speed, phases,
/// heads and losses.
nlohmann::json run_figures_json(const Snapshot& snapshot, RowId run_id);
/// Prints a document on stdout. Bytes that are not UTF-8 (names from files) become U+FFFD.
void print_document(const nlohmann::json& document);

/// Returns one line: time to first token, and the latency between tokens; "" without counted steps.
std::string latency_text(const Latency& latency);
nlohmann::json latency_json(const Latency& latency);
/// Returns the tables of acceptance and speed by length of the context and by position in the text; "" if
/// neither spans two bins.
std::string position_text(const Snapshot& snapshot, RowId run_id);

/// Returns one line: "speed-up 1.25x [1.18, 1.31] against autoregressive decoding: ...", with the prompts it
/// covers. "" if the capture has no baseline.
std::string speedup_text(const Snapshot& snapshot, RowId run_id);

/// Returns one sentence with a run's main result and its confidence interval. The result is the speed
/// relative to plain decoding if the capture has a baseline, else relative to the full head, else absolute.
/// A second line says why there is no comparison with the full head. Ends with a line feed; "" for a run
/// without rounds.
std::string finding_text(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
