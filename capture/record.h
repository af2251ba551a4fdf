#pragma once

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "capture/rows.h"

/// Records that producers (engine, CUPTI, file reader) send to the recorder thread. The producer assigns the
/// row ids inside a run through RowIds, so every consumer (Capture, storage writer) uses the same ids.
namespace draftscope {

/// One row of v_step_phase: the time and bytes of a phase in a step, as defined in capture/queries.h.
struct StepPhaseRow {
    int phase_id = 0;
    TimeNs busy_ns = 0, exposed_ns = 0;
    std::int64_t bytes = 0;
    auto operator<=>(const StepPhaseRow&) const = default;
};
/// Returns one row, ordered by phase id, for each phase in `spans` and one for the remainder. `spans` are all
/// spans of the step, in any order. A step that was not sampled has no rows.
std::vector<StepPhaseRow> step_phase_rows(const StepRow& step, std::span<const SpanRow> spans);

/// Frequency ranking and text of the target's tokens. Shared, never copied.
struct Vocab {
    RowId id = 0;
    std::vector<VocabRow> rows;  ///< indexed by token id
};

/// The first record of a run.
struct RunStarted {
    RunRow run;
    std::shared_ptr<const Vocab> vocab;
    ClockAnchorRow anchor;
};
struct PromptStarted {
    PromptRow prompt;
};
/// Output of a prompt that is still decoding; replaces the earlier text. `tokens` holds the tokens outside
/// any round (the first token, from prefill).
struct PromptProgress {
    RowId prompt_id = 0;
    std::string output;
    int generated_tokens = 0;
    TimeNs prefill_ns = 0;
    std::vector<TokenRow> tokens;
};
struct PromptEnded {
    PromptRow prompt;  ///< final text, counts, finish
};

/// The round of one sequence in a step.
struct RoundRecord {
    RoundRow round;
    std::vector<NodeRow> nodes;
    std::vector<NodeTopRow> tops;
    std::vector<TokenRow> tokens;
    std::vector<HeadEvalRow> head_evals;
};
/// One pass of the decode loop: a round for each active sequence, and the spans of all rounds.
struct StepRecord {
    StepRow step;
    std::vector<RoundRecord> rounds;
    std::vector<SpanRow> spans;
    /// Sums of the spans; set only if the record comes from a file and its spans stay there.
    std::vector<StepPhaseRow> phases = {};
};
/// Position of a held engine: the phase that ended last and the phase that begins next, by id (0 = none).
struct HoldPoint {
    enum class Kind { before_prefill, before_round, after_phase, after_level, after_round };
    Kind kind = Kind::before_round;
    int round = 0;  ///< number in the run, from 1: the current round, or the next one between rounds
    int phase_id = 0, level = 0;
    TimeNs phase_ns = 0;  ///< duration of the phase that ended
    int next_phase_id = 0, next_level = 0;
    RowId prompt_id = 0;  ///< after a round: the sequence that hit the breakpoint or is watched; 0 = none
    bool operator==(const HoldPoint&) const = default;
};
/// The current round, published while the gate holds it at a level or a phase. Never stored.
struct LiveRound {
    bool active = false;
    StepRow step;  ///< ends at the time at which the engine is held
    RoundRecord partial;
    std::vector<SpanRow> spans;
    HoldPoint at;
    int levels = 0;         ///< maximum depth of its tree
    std::vector<int> beam;  ///< nodes that the drafter proposes candidates for next
};
/// Counter of a run: an interval in which the gate held the engine. Its time is the start, its value the
/// length in ns.
inline constexpr std::string_view pause_counter = "pause_ns";
struct SpansRecorded {  ///< spans outside steps (prefill), or spans that arrive after their step
    std::vector<SpanRow> spans;
};
/// Head evaluations that are not part of a StepRecord.
struct HeadEvaluated {
    std::vector<HeadEvalRow> rows;
};
struct RunEnded {
    RowId run_id = 0;
    RunEnd how = RunEnd::ok;
    TimeNs end_ns = 0;
    ClockAnchorRow anchor;
};

using Record = std::variant<RunStarted, PromptStarted, PromptProgress, PromptEnded, StepRecord, LiveRound,
                            SpansRecorded, HeadEvaluated, RunEnded, LossRow, CounterRow, NoteRow,
                            std::vector<NvtxRangeRow>, std::vector<GpuOpRow>>;

/// Receives records and takes ownership of them. Thread-safe. It must not block longer than a short critical
/// section unless the implementation documents back-pressure.
class RecordSink {
  public:
    virtual ~RecordSink() = default;
    virtual void push(Record record) = 0;
    /// Blocks a producer until the sink can take more records. Returns at once unless the sink applies
    /// back-pressure.
    virtual void wait_for_space() {}
};

/// Row ids of one capture file, assigned by the producer. One instance per file, used from the engine thread.
struct RowIds {
    RowId run = 0, prompt = 0, step = 0, round = 0, span = 0, gpu_op = 0;
};

}  // namespace draftscope
