#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "capture/record.h"

/// Captures for tests. Times are in ns.
namespace draftscope::testing {

SpanRow span(int phase, TimeNs start, TimeNs end, int lane = 0, std::int64_t bytes = 0);
NodeRow node(int number, int parent, int depth, TokenId token, double probability, bool accepted = false);
TokenRow token(TokenId id, int depth, bool covered = true, TokenSource source = TokenSource::draft);
/// Evaluation of a head in a round.
struct Eval {
    std::string head;
    HeadMode mode;
    TimeNs head_ns;
    int committed, covered;
    double active_rows = 8;
    std::optional<double> mass = {};
    std::int64_t bytes = 80;
};
/// Makes a round that drafted 11 tokens.
RoundRecord round_of(int committed = 1, const std::vector<Eval>& evals = {});
/// Makes the vocabulary with id 1 of the given words, ranked in this order.
std::shared_ptr<const Vocab> vocabulary(const std::vector<std::string>& words, bool ranked = true);

/// Numbers the rows of records and sets the ids by which they refer to each other. Ids that are set stay.
class RecordBuilder {
  public:
    explicit RecordBuilder(RowIds last = {}) : ids_(last) {}

    /// Starts a run; the following records belong to it.
    RunStarted run(RunRow row, std::shared_ptr<const Vocab> vocab = nullptr, ClockAnchorRow anchor = {});
    PromptStarted prompt(PromptRow row = {});
    /// Its rounds without a prompt belong to the newest one.
    StepRecord step(StepRecord record);
    std::vector<SpanRow> spans(std::vector<SpanRow> rows, RowId step_id = 0);
    /// The ids that were given last.
    RowIds& ids() { return ids_; }

  private:
    RowIds ids_;
};

/// Builds a capture record by record. Without a call of run(), it has a run of a trimmed head with id 1; a
/// step in a run without prompts starts one.
class CaptureBuilder {
  public:
    explicit CaptureBuilder(std::shared_ptr<const Vocab> vocab = nullptr, RowIds last = {})
        : rows_(last), vocab_(std::move(vocab)) {}

    /// These return the id of the new row.
    RowId run(RunRow row, ClockAnchorRow anchor = {});
    RowId prompt(PromptRow row = {});
    RowId prompt(std::string category);
    RowId step(StepRecord record);
    RowId step(TimeNs start, TimeNs end, std::vector<SpanRow> spans = {}, RoundRecord round = round_of(),
               Excluded excluded = Excluded::no, TimeNs paused = 0);
    /// Records spans outside a step.
    void spans(std::vector<SpanRow> rows);
    void end_prompt(int generated, TimeNs prefill);
    void add(Record record);

    RowIds& ids() { return rows_.ids(); }
    Snapshot snapshot();
    const std::vector<Record>& records() const { return records_; }

  private:
    void need_run();
    RecordBuilder rows_;
    std::shared_ptr<const Vocab> vocab_;
    bool has_run_ = false, has_prompt_ = false;
    std::vector<Record> records_;
    Capture capture_;
    std::uint64_t version_ = 0;
};

}  // namespace draftscope::testing
