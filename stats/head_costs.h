#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "capture/queries.h"
#include "stats/cost_model.h"

/// The acceptance-cost model over a recorded run. It selects the rounds to compare by the same definitions as
/// the SQL view v_head.
/// - Heads with mode `drive` or `selfpaced` decoded whole texts, warm-up rounds included. Their tau values
///   are compared over the prompts that both decoded. `calibration` rows, and `aligned` rows of older
///   captures, exist in some rounds only. Such a head is compared with the driving head in those rounds, and
///   through it with the full head (PairedSample).
/// - The full reference of a run is its own `full` rows of mode drive, else selfpaced. The next choice is
///   the drive rows of comparable runs of `full` in the file (stats/comparable.h), over the prompts
///   that both runs have (same external id, turn and text). The last choices are the run's aligned and
///   calibration rows. Calibration in fewer than `min_conversations` conversations gives nu and kappa, but no
///   rho_tau and no speed-up.
/// - nu = T_head / T_head,full over rows whose times count. T_non-head = (time of counted steps - T_head in
///   them) / rounds in them, of the run that T_head,full comes from. kappa = T_head,full / T_non-head.
/// - The measured speed-up of a driving head is its speed relative to comparable runs of `full` on common
///   prompts. Speed is committed tokens per second of counted steps; a step's time is divided evenly among
///   its rounds.
/// - Intervals resample conversations (capture/conversations.h).
namespace draftscope {

/// Returns the counted time of a round (its part of the step) and the tokens committed in it. Without T_head.
HeadSample counted_time(const Snapshot& snapshot, std::size_t round);

/// The rows of the full head that a head is compared with.
enum class FullReference : std::uint8_t { none, drive, selfpaced, other_run, aligned, calibration };
std::string_view to_text(FullReference reference);

/// A head's time and bytes relative to the run's full head.
struct HeadBytes {
    double per_second = 0;  ///< bytes per round / T_head
    /// The nu if time were proportional to bytes: bytes / bytes of the full head, per round.
    double explained = 0;
    double times = 0;        ///< nu / explained
    double constant_ns = 0;  ///< T_head - explained T_head,full per round: routing, selection, calls
};

/// Bytes that a head's rounds read, and the part of T_head that the machine's probed bandwidth explains.
struct HeadTraffic {
    double streamed = 0;  ///< bytes of whole matrices per round
    double gathered = 0;  ///< bytes of scattered rows per round
    /// Predicted time per round, each kind of read at its probed rate (`doctor`). Absent without a probe or
    /// without counted times.
    std::optional<double> explained_ns;
    double head_ns = 0;  ///< T_head per round
    double flops = 0;    ///< of the head calls per round; 0 = unknown

    double times() const { return explained_ns ? head_ns / *explained_ns : 0; }
    double constant_ns() const { return explained_ns ? head_ns - *explained_ns : 0; }
};
HeadTraffic head_traffic(const RunRow& run, const HeadStats& stats);

/// A head's statistics and its comparison with the full head.
struct HeadComparison {
    HeadStats stats;
    HeadTraffic reads;
    AcceptanceCost cost;
    /// Absent without times of both heads, or without a full head in this run.
    std::optional<HeadBytes> bytes;
    FullReference reference = FullReference::none;
    /// Whether the comparison uses rounds that the head did not pace itself, or `path_candidates`. Such
    /// rounds are aligned rows, or those of a full head in some rounds only.
    bool estimate = false;
    /// Whether the head drafted from candidates of the accepted path, where a live run takes every node's.
    bool path_candidates = false;
    /// Why the comparison with the full head has no intervals, or no rho_tau, with a remedy. "" if it has
    /// them, or without a full head.
    std::string no_interval;
};
/// Returns one comparison per row of head_stats(), in the same order.
std::vector<HeadComparison> head_costs(const Snapshot& snapshot, RowId run_id,
                                       const BootstrapOptions& options = {});

/// Acceptance over all rounds and times over counted steps of one prompt. `unit.head_ns` is the driving
/// head's time.
struct DrivenPrompt {
    RowId prompt_id = 0;
    HeadSample unit;
    /// Rows read per call of the head and tokens of one row's shortlist, summed over rounds; 0 without a
    /// head.
    double active_rows = 0, row_tokens = 0;
};
/// Returns the prompts in the order of their first rounds.
std::vector<DrivenPrompt> driven_prompts(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope
