#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "capture/rows.h"
#include "capture/step_phases.h"

/// What producers (engine, CUPTI, file reader) hand to the recorder thread. Row ids inside a run are assigned
/// by the producer through RowIds, so every consumer (Capture, storage writer) sees the same ids.
namespace draftscope {

/// Frequency ranking and text of the target's tokens; shared, never copied.
struct Vocab {
    RowId id = 0;
    std::vector<VocabRow> rows;  ///< indexed by token id
};

struct RunStarted {
    RunRow run;
    std::shared_ptr<const Vocab> vocab;
    ClockAnchorRow anchor;
};
struct PromptStarted {
    PromptRow prompt;
};
/// Output so far, while the prompt is decoding; replaces the earlier text. `tokens` are those not in any
/// round (the first token, from prefill).
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

/// One sequence's round of a step.
struct RoundRecord {
    RoundRow round;
    std::vector<NodeRow> nodes;
    std::vector<NodeTopRow> tops;
    std::vector<TokenRow> tokens;
    std::vector<HeadEvalRow> head_evals;
};
/// One pass of the decode loop: a round for each active sequence, and the spans of all of them.
struct StepRecord {
    StepRow step;
    std::vector<RoundRecord> rounds;
    std::vector<SpanRow> spans;
    /// Only from a file whose spans stay in it: what all of them add up to.
    std::vector<StepPhaseRow> phases = {};
};
/// Where a held engine stands: the phase that ended last and the one that begins next, by id (0 = none).
struct HoldPoint {
    enum class Kind { before_prefill, before_round, after_phase, after_level, after_round };
    Kind kind = Kind::before_round;
    int round = 0;  ///< of the run, from 1: the one under way, or the next one between rounds
    int phase_id = 0, level = 0;
    TimeNs phase_ns = 0;  ///< what the phase that ended took
    int next_phase_id = 0, next_level = 0;
    bool operator==(const HoldPoint&) const = default;
};
/// The round under way, shown while the gate holds it (step level, step phase). Never stored.
struct LiveRound {
    bool active = false;
    StepRow step;  ///< so far: it ends where the engine is held
    RoundRecord partial;
    std::vector<SpanRow> spans;
    HoldPoint at;
    int levels = 0;  ///< depth that its tree can reach
};
/// Counter of a run: a stretch in which the gate held the engine. Its time is the start, its value the
/// length in ns.
inline constexpr std::string_view pause_counter = "pause_ns";
struct SpansRecorded {  ///< spans outside steps (prefill), or arriving after their step
    std::vector<SpanRow> spans;
};
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
                            std::vector<NvtxRangeRow>, std::vector<GpuOpRow>, std::vector<GpuCounterRow>>;

/// Takes ownership; thread-safe; must not block longer than a short critical section unless the
/// implementation says that it applies back-pressure.
class RecordSink {
  public:
    virtual ~RecordSink() = default;
    virtual void push(Record record) = 0;
    /// For producers that may wait: returns when the sink can take more. At once unless it applies
    /// back-pressure.
    virtual void wait_for_room() {}
};

/// Row ids of one capture file, handed out by the producer side. One instance per file, used from the engine
/// thread.
struct RowIds {
    RowId run = 0, prompt = 0, step = 0, round = 0, span = 0, gpu_op = 0;
};

}  // namespace draftscope
