#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/record.h"
#include "engine/control/debug_gate.h"
#include "engine/record/span_collector.h"

namespace draftscope {

/// The destination of a session's records. `sink` null = decode only.
struct CaptureOutput {
    RecordSink* sink = nullptr;
    RowIds* ids = nullptr;
    RowId run_id = 0;
    TimeNs run_start = 0;                                    ///< CLOCK_MONOTONIC time that is the run's zero
    std::string head_text;                                   ///< canonical head spec for head_eval rows
    const std::vector<std::optional<int>>* ranks = nullptr;  ///< frequency rank of each token id; may be null
};

/// Sets the ids of run, step and round in all rows of a round.
void set_ids(RoundRecord& record, RowId run, RowId step, RowId round);

/// Pushes a session's rows to the capture and assigns their ids in push order. Does nothing without a sink.
class CaptureEmitter {
  public:
    CaptureEmitter(CaptureOutput capture_output, SpanCollector& spans)
        : output_(std::move(capture_output)), spans_(spans) {}

    bool on() const { return output_.sink != nullptr && output_.ids != nullptr; }
    RowId run_id() const { return output_.run_id; }
    const std::string& head_text() const { return output_.head_text; }
    std::optional<int> rank(TokenId token) const;  ///< CaptureOutput::ranks

    void start_prompt(PromptRow& prompt);
    /// Marks the spans collected so far as belonging to no step.
    void prefill_done();
    /// Pushes the `output` so far. `tokens` are those of no round: the first one.
    void progress(const PromptRow& prompt, const std::string& output, std::vector<TokenRow> tokens = {});
    /// True at most every 50 ms, which is often enough to show how texts grow.
    bool progress_due();
    void end_prompt(const PromptRow& prompt);
    /// Id of round `index` of the `rounds` rounds in the step recorded last.
    RowId latest_round_id(std::size_t index, std::size_t rounds) const {
        return on() ? output_.ids->round + 1 + static_cast<RowId>(index) - static_cast<RowId>(rounds) : 0;
    }
    /// Fills in all ids and pushes the step with the collected spans. With several rounds, the spans belong
    /// to all of them.
    void step(StepRow step, std::vector<RoundRecord> rounds);
    /// Publishes the current round with the spans collected so far, under its future ids.
    void live(LiveRound round);
    void pauses(std::span<const DebugGate::Pause> pauses);
    void evaluated(std::vector<HeadEvalRow> rows);
    void note(RowId round_id, std::string text);

  private:
    void push_losses();

    CaptureOutput output_;
    SpanCollector& spans_;
    TimeNs last_progress_ = 0;
    int steps_ = 0;
    bool live_shown_ = false;
};

}  // namespace draftscope
