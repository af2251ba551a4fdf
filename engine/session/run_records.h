#pragma once

#include <string>
#include <vector>

#include "capture/record.h"
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
    /// Output so far, at most every 50 ms unless `tokens` has the first token.
    void progress(const PromptRow& prompt, std::vector<TokenRow> tokens = {});
    void end_prompt(const PromptRow& prompt);
    /// Id of the next round pushed, for rows that name it before.
    RowId next_round_id() const { return on() ? recording_.ids->round + 1 : 0; }
    /// Fills in every id, takes the collected spans, and pushes.
    void step(StepRow step, RoundRecord round);
    /// Shows the round in flight with the spans collected so far.
    void live(RoundRecord partial, Phase phase, int level);
    void evaluated(std::vector<HeadEvalRow> rows);

  private:
    void push_losses();

    Recording recording_;
    SpanLog& spans_;
    TimeNs last_progress_ = 0;
    int steps_ = 0;
    int prompts_ = 0;
    bool live_shown_ = false;
};

}  // namespace draftscope
