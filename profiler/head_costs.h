#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "capture/queries.h"
#include "profiler/cost_model.h"

/// The acceptance-cost model over a recorded run: which rounds are compared with which, by the same
/// definitions as the SQL view v_head.
///
/// - Heads that drive or follow the text at their own pace (`drive`, `selfpaced`) went over the whole text,
///   warm-up and calibration rounds included, so their tau are compared as they are: the same prompts, the
///   same tokens. `aligned` and `calibration` rows exist in some rounds only; such a head is compared with
///   the driving one in those rounds, and through it with the full head (PairedUnit).
/// - The full reference of a run: its own `full` rows of mode drive, else selfpaced, else the drive rows of
///   comparable runs of `full` in the file (profiler/comparable.h) over the prompts that both runs have (same
///   external id, turn and text), else its own aligned, else its own calibration rows.
/// - nu = T_head / T_head,full over rows whose times count. T_non-head = (time of counted steps - T_head in
///   them) / rounds in them, of the run that T_head,full comes from; kappa = T_head,full / T_non-head.
/// - The measured speed-up of a driving head is its committed tokens per second of counted steps against
///   those of comparable runs of `full` on the prompts that both have; a step's time is divided evenly
///   among its rounds.
/// - Intervals resample conversations (capture/conversations.h).
namespace draftscope {

enum class FullReference : std::uint8_t { none, drive, selfpaced, other_run, aligned, calibration };
std::string_view to_text(FullReference reference);

/// A head's time against the bytes it reads, the run's full head as the measure of both.
struct HeadBytes {
    double per_second = 0;   ///< bytes per round / T_head
    double explained = 0;    ///< nu if time followed bytes: bytes / bytes of the full head, per round
    double times = 0;        ///< nu / explained
    double constant_ns = 0;  ///< per round, T_head - explained T_head,full: routing, selection, calls
};

/// What a head's rounds read, and what of T_head the machine's probes explain by that.
struct HeadReads {
    double streamed = 0;  ///< bytes per round, of whole matrices
    double gathered = 0;  ///< bytes per round, of rows that lie anywhere
    /// Per round, each kind at its own probe (`doctor`); absent where one was never made or no time counts.
    std::optional<double> explained_ns;
    double head_ns = 0;  ///< T_head per round

    double times() const { return explained_ns ? head_ns / *explained_ns : 0; }
    double constant_ns() const { return explained_ns ? head_ns - *explained_ns : 0; }
};
HeadReads head_reads(const RunRow& run, const HeadStats& stats);

struct HeadComparison {
    HeadStats stats;
    HeadReads reads;
    AcceptanceCost cost;
    std::optional<HeadBytes> bytes;  ///< absent without times of both, or without a full head in this run
    FullReference reference = FullReference::none;
    /// Rests on rounds that the head did not pace itself: aligned rows, or a full head seen in some rounds
    /// only.
    bool estimate = false;
    /// Why the comparison with the full head has no intervals, and what to do; "" where it has, and without a
    /// full head.
    std::string no_interval;
};
/// One per row of head_stats(), in its order.
std::vector<HeadComparison> head_costs(const Snapshot& snapshot, RowId run_id,
                                       const BootstrapOptions& options = {});

/// What a run did in one of its prompts: acceptance of every round, times of counted steps. `unit.head_ns` is
/// the driving head's.
struct DrivenPrompt {
    RowId prompt_id = 0;
    HeadUnit unit;
    double active_rows = 0;  ///< summed over rounds: rows read per call of the head; 0 without a head
};
/// In the order of the prompts' first rounds.
std::vector<DrivenPrompt> driven_prompts(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope
