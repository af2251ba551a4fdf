#pragma once

#include <string>
#include <utility>
#include <vector>

#include "capture/capture.h"
#include "capture/queries.h"

/// Builds captures by hand: a span is {phase, start, end, lane, bytes}, times in ns.
namespace draftscope::testing {

inline SpanRow span(int phase, TimeNs start, TimeNs end, int lane = 0, std::int64_t bytes = 0) {
    SpanRow row;
    row.phase_id = phase;
    row.start_ns = start;
    row.end_ns = end;
    row.lane = lane;
    row.thread_id = lane;
    row.bytes = bytes;
    return row;
}

/// Builds one run step by step, with one sequence's round in each step.
class RunBuilder {
  public:
    explicit RunBuilder(RowId first_id = 1, std::string head = "fr-spec:v=8")
        : run_(first_id), step_(first_id), round_(first_id), prompt_(first_id) {
        RunStarted started;
        started.run.id = run_;
        started.run.head = std::move(head);
        started.run.target = "tiny";
        capture_.apply(started);
        PromptStarted prompt;
        prompt.prompt.id = prompt_;
        prompt.prompt.run_id = run_;
        capture_.apply(prompt);
    }

    struct Eval {
        std::string head;
        HeadMode mode;
        TimeNs head_ns;
        int committed, covered;
        double active_rows = 8;
        std::optional<double> mass = {};
        std::int64_t bytes = 80;
    };

    RunBuilder& step(TimeNs start, TimeNs end, std::vector<SpanRow> spans, int committed = 1,
                     Excluded excluded = Excluded::no, TimeNs paused = 0, std::vector<Eval> evals = {}) {
        StepRecord record;
        record.step = {step_++, run_, ordinal_++, start, end, paused, excluded};
        RoundRecord round;
        round.round.id = round_++;
        round.round.run_id = run_;
        round.round.step_id = record.step.id;
        round.round.prompt_id = prompt_;
        round.round.drafted = 11;
        round.round.accepted = committed - 1;
        round.round.committed = committed;
        for (const Eval& eval : evals) {
            HeadEvalRow row;
            row.run_id = run_;
            row.round_id = round.round.id;
            row.head = eval.head;
            row.mode = eval.mode;
            row.active_rows = eval.active_rows;
            row.bytes = eval.bytes;
            row.head_ns = eval.head_ns;
            row.committed = eval.committed;
            row.accepted = eval.committed - 1;
            row.covered = eval.covered;
            row.covered_mass = eval.mass;
            round.head_evals.push_back(row);
        }
        for (SpanRow& row : spans) {
            row.run_id = run_;
            row.step_id = record.step.id;
        }
        record.spans = std::move(spans);
        record.rounds.push_back(std::move(round));
        capture_.apply(record);
        return *this;
    }

    void end_prompt(int generated, TimeNs prefill) {
        PromptEnded ended;
        ended.prompt.id = prompt_;
        ended.prompt.run_id = run_;
        ended.prompt.generated_tokens = generated;
        ended.prompt.prefill_ns = prefill;
        capture_.apply(ended);
    }

    Capture& capture() { return capture_; }
    Snapshot snapshot() const { return capture_.snapshot(1); }
    RowId run() const { return run_; }

  private:
    Capture capture_;
    RowId run_, step_, round_, prompt_;
    int ordinal_ = 0;
};

inline const PhaseStats* find_phase(const std::vector<PhaseStats>& rows, int id) {
    for (const PhaseStats& row : rows)
        if (row.phase_id == id) return &row;
    return nullptr;
}

}  // namespace draftscope::testing
