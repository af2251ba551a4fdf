#pragma once

#include <span>
#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/session/gate.h"
#include "engine/session/session.h"
#include "engine/session/span_log.h"

namespace draftscope {

/// A session's side of the capture: hands out row ids in the order in which rows are pushed, and does nothing
/// when there is no sink.
class RunRecords {
  public:
    RunRecords(Recording recording, SpanLog& spans) : recording_(std::move(recording)), spans_(spans) {}

    bool on() const { return recording_.sink != nullptr && recording_.ids != nullptr; }
    RowId run_id() const { return recording_.run_id; }
    const std::string& head_text() const { return recording_.head_text; }
    const std::vector<std::optional<int>>* ranks() const { return recording_.ranks; }

    void start_prompt(PromptRow& prompt);
    /// The spans collected so far belong to no step.
    void prefill_done();
    /// `output` so far. `tokens` are those of no round: the first one.
    void progress(const PromptRow& prompt, const std::string& output, std::vector<TokenRow> tokens = {});
    /// True at most every 50 ms: often enough to show how texts grow.
    bool progress_due();
    void end_prompt(const PromptRow& prompt);
    /// Id that round `index` of the next step will have, for rows that name it before.
    RowId next_round_id(std::size_t index) const {
        return on() ? recording_.ids->round + 1 + static_cast<RowId>(index) : 0;
    }
    /// Id of round `index` of the `rounds` of the step recorded last.
    RowId latest_round_id(std::size_t index, std::size_t rounds) const {
        return on() ? recording_.ids->round + 1 + static_cast<RowId>(index) - static_cast<RowId>(rounds) : 0;
    }
    /// Fills in every id, takes the collected spans, and pushes. The spans of a step with several rounds
    /// belong to all of them.
    void step(StepRow step, std::vector<RoundRecord> rounds);
    /// Shows the round in flight with the spans collected so far. Ids are those that step and round will
    /// have.
    void live(LiveRound round);
    void pauses(std::span<const Gate::Pause> pauses);
    void evaluated(std::vector<HeadEvalRow> rows);

  private:
    void push_losses();

    Recording recording_;
    SpanLog& spans_;
    TimeNs last_progress_ = 0;
    int steps_ = 0;
    bool live_shown_ = false;
};

}  // namespace draftscope
