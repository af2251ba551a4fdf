#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/capture.h"

/// Numbers derived from a snapshot, with the same definitions as the SQL views of the capture file:
/// - Acceptance (rounds, tau, per depth, coverage) is over all rounds. Times and speeds are over the steps
///   that count (StepRow::time_counts) and the tokens committed in them. Other heads draft between the
///   steps, so no step's time includes them.
/// - Step time = end - start - paused. Phases, shares, remainder, T_head and T_non-head are over sampled
///   steps: those whose spans were recorded (StepRow::sampled).
/// - Spans of one step, thread and lane nest by their intervals. Self time = duration - that of the direct
///   children. A phase's time in a step is the sum of the self times of its spans. Spans without a step don't
///   count.
/// - remainder = max(0, step time - union of all critical-lane spans of the step).
/// - exposed = self time on the critical lane, plus the part of each side-lane span's self time that
///   exceeds its overlap with the outermost critical spans of the step (never negative). busy (`total`) =
///   self times of all lanes.
/// - v_phase: one sample per counted step in which the phase has a span; the remainder has one for each
///   sampled counted step. `count` = samples. `median`, `p90` and `p99` are over the samples' busy time, type
///   7 (linear interpolation, as numpy). `mad` = median distance from the median x 1.4826. `share` = exposed
///   / summed time of those steps. First-class phases are listed even with count 0, in `sort` order.
/// - v_head: rows grouped by run, head, mode. Acceptance (rounds, tau, coverage, covered_mass) and the cost
///   in rows and bytes use all rows, so that all heads are compared on the same texts. `T_head` is the mean
///   head_ns over the rows whose times count: of mode drive, rows of sampled steps that count; of other
///   modes, rows of all steps but the warm-up, and rows without a round. `tau` = committed / rows;
///   calibration rows, a few of each text, have none. coverage = covered / committed, covered_mass = mean of
///   the present values. stats/head_costs.h has the ratios to the full head.
namespace draftscope {

inline constexpr int max_phases = 32;

/// Exposed time of one step by phase. It is the self time on the critical lane plus side-lane time while the
/// critical lane was idle. A parent keeps the self time outside its children. `remainder_ns` = step - paused
/// - union of the critical lane, so the critical lane's phases and the remainder add up to the step.
struct StepPhases {
    std::array<TimeNs, max_phases> ns{};  ///< indexed by phase id; the remainder has its own id
    std::array<std::int64_t, max_phases> bytes{};
    TimeNs step_ns = 0;  ///< end - start - paused
    TimeNs remainder_ns = 0;
};
StepPhases step_phases(const Snapshot& snapshot, std::size_t step_index);

/// One row of v_phase. A sample is the phase's self time within one step, over all lanes. Steps without the
/// phase give no sample. Prefill lies outside the steps and has no row.
struct PhaseStats {
    int phase_id = 0;  ///< the remainder has its own row
    std::int64_t count = 0;
    TimeNs total_ns = 0;
    TimeNs exposed_ns = 0;
    double median_ns = 0;                  ///< linear interpolation (type 7)
    double mad_ns = 0;                     ///< median absolute deviation x 1.4826
    std::optional<double> p90_ns, p99_ns;  ///< absent below 36 and 368 samples
    double share = 0;                      ///< exposed time / summed time of the sampled steps
    double gb_per_s = 0;                   ///< bytes / total; 0 if bytes are unknown
};
/// Returns the statistics of each phase over the steps that count, as in v_phase.
std::vector<PhaseStats> phase_stats(const Snapshot& snapshot, RowId run_id);

/// Returns how the run's text relates to the target's: "exact", "distribution" or "lossy". "exact" is the
/// autoregressive text, "distribution" is sampled from the target's distribution with other random numbers,
/// and "lossy" comes from another distribution. "unknown": an imported run does not say. Reads `config_json`,
/// where the engine writes it.
std::string_view losslessness(const RunRow& run);

/// Totals of a run.
struct RunTotals {
    std::int64_t rounds = 0, draft_tokens = 0, accepted = 0, committed = 0, generated = 0, steps = 0;
    std::int64_t excluded_warmup = 0, excluded_paused = 0, excluded_shadow = 0, untimed = 0;
    std::int64_t unknown_drafts = 0;  ///< imported rounds that `draft_tokens` lacks
    TimeNs decode_ns = 0;             ///< time of all steps, paused time excluded
    TimeNs prefill_ns = 0;
    TimeNs counted_ns = 0;               ///< part of decode_ns in steps whose time counts
    std::int64_t counted_committed = 0;  ///< tokens committed in counted_ns
    double tau = 0;                      ///< committed / rounds; 0 without rounds
    double tau_unclipped = 0;            ///< 1 + accepted / rounds; 0 without rounds
    /// counted_committed / counted_ns, so that pauses don't lower it; 0 if no step counts.
    double tokens_per_second = 0;
    /// Speed including prefill: all generated tokens over prefill_ns plus the time of all rounds at
    /// tokens_per_second. Both speeds thus use the same steps.
    double tokens_per_second_e2e = 0;
};
RunTotals run_totals(const Snapshot& snapshot, RowId run_id);

/// One row of v_prompt.
struct PromptStats {
    RowId prompt_id = 0;
    std::int64_t rounds = 0, draft_tokens = 0, accepted = 0, committed = 0;
    std::int64_t unknown_drafts = 0;  ///< imported rounds that `draft_tokens` lacks
    TimeNs decode_ns = 0;             ///< time of all steps of the prompt, paused time excluded
    double tau = 0;                   ///< 0 without rounds
    double tau_unclipped = 0;         ///< 0 without rounds
    double tokens_per_second = 0;     ///< over counted steps, as in RunTotals; 0 without any
};
/// Returns the statistics in the order of the run's prompts.
std::vector<PromptStats> prompt_stats(const Snapshot& snapshot, RowId run_id);

/// Statistics of one head of a run: the part of v_head that needs no other head.
struct HeadStats {
    std::string head;
    HeadMode mode = HeadMode::drive;
    std::int64_t rounds = 0, timed_rounds = 0;
    double tau = 0, tau_unclipped = 0;  ///< 0 for calibration rows, which exist in a few rounds only
    std::optional<double> coverage, covered_mass;
    double active_rows = 0;
    std::optional<double> row_tokens;  ///< absent in older captures
    double bytes_per_round = 0, flops_per_round = 0;
    /// Bytes per round / calls of the driving head per round; 0 = no calls recorded.
    double bytes_per_call = 0;
    double head_ns_per_round = 0;  ///< over timed rounds; 0 without any
};
/// Returns whether the rows of a call have shortlists of their own: fewer tokens than the call reads, both
/// rounded. `row_tokens` absent or 0 = unknown.
bool has_own_shortlists(std::optional<double> row_tokens, double active_rows);
/// Returns the statistics ordered by mode and head.
std::vector<HeadStats> head_stats(const Snapshot& snapshot, RowId run_id);

/// Returns the index of the round with this id; absent if the snapshot lacks it.
std::optional<std::size_t> round_index(const Snapshot& snapshot, RowId round_id);
/// Returns whether the time of a head's row counts. `round`: index of its round; absent = a row without a
/// round.
bool time_counts(const Snapshot& snapshot, HeadMode mode, std::optional<std::size_t> round);

}  // namespace draftscope
