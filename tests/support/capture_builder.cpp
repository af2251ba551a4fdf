#include "tests/support/capture_builder.h"

#include <cmath>
#include <utility>

namespace draftscope::testing {

SpanRow span(int phase, TimeNs start, TimeNs end, int lane, std::int64_t bytes) {
    SpanRow row{.phase_id = phase, .lane = lane, .start_ns = start, .end_ns = end, .bytes = bytes};
    return row;
}

NodeRow node(int number, int parent, int depth, TokenId token, double probability, bool accepted) {
    NodeRow row;
    row.node = number;
    row.parent = parent;
    row.depth = depth;
    row.token_id = token;
    row.draft_logprob = static_cast<float>(std::log(probability));
    row.accepted = accepted;
    return row;
}

TokenRow token(TokenId id, int depth, bool covered, TokenSource source) {
    TokenRow row;
    row.token_id = id;
    row.depth = depth;
    row.covered = covered;
    row.source = source;
    return row;
}

RoundRecord round_of(int committed, const std::vector<Eval>& evals) {
    RoundRecord record;
    record.round.draft_tokens = 11;
    record.round.accepted = committed - 1;
    record.round.committed = committed;
    for (const Eval& eval : evals)
        record.head_evals.push_back({0, 0, eval.head, eval.mode, eval.active_rows, eval.bytes, eval.head_ns,
                                     eval.committed - 1, eval.committed, eval.covered, eval.mass});
    return record;
}

std::shared_ptr<const Vocab> vocabulary(const std::vector<std::string>& words, bool ranked) {
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 1;
    for (const std::string& word : words) {
        const auto id = static_cast<TokenId>(vocab->rows.size());
        vocab->rows.push_back({1, id, word, word, ranked ? std::optional<int>(id) : std::nullopt, {}});
    }
    return vocab;
}

namespace {

/// Uses the id of the row if it is set, and else the next one.
void number(RowId& id, RowId& last) {
    last = id = id == 0 ? last + 1 : id;
}
void link(RowId& id, RowId to) {
    if (id == 0) id = to;
}

}  // namespace

RunStarted RecordBuilder::run(RunRow row, std::shared_ptr<const Vocab> vocab, ClockAnchorRow anchor) {
    number(row.id, ids_.run);
    if (vocab != nullptr) link(row.vocab_id, vocab->id);
    return {std::move(row), std::move(vocab), anchor};
}

PromptStarted RecordBuilder::prompt(PromptRow row) {
    number(row.id, ids_.prompt);
    link(row.run_id, ids_.run);
    return {std::move(row)};
}

StepRecord RecordBuilder::step(StepRecord record) {
    StepRow& step = record.step;
    number(step.id, ids_.step);
    link(step.run_id, ids_.run);
    for (RoundRecord& each : record.rounds) {
        RoundRow& round = each.round;
        number(round.id, ids_.round);
        link(round.run_id, step.run_id);
        link(round.step_id, step.id);
        link(round.prompt_id, ids_.prompt);
        for (NodeRow& row : each.nodes) link(row.round_id, round.id);
        for (NodeTopRow& row : each.tops) link(row.round_id, round.id);
        for (TokenRow& row : each.tokens) {
            link(row.round_id, round.id);
            link(row.prompt_id, round.prompt_id);
        }
        for (HeadEvalRow& row : each.head_evals) {
            link(row.round_id, round.id);
            link(row.run_id, step.run_id);
        }
    }
    record.spans = spans(std::move(record.spans), step.id);
    return record;
}

std::vector<SpanRow> RecordBuilder::spans(std::vector<SpanRow> rows, RowId step_id) {
    for (SpanRow& row : rows) {
        number(row.id, ids_.span);
        link(row.run_id, ids_.run);
        link(row.step_id, step_id);
    }
    return rows;
}

void CaptureBuilder::need_run() {
    if (has_run_) return;
    RunRow row;
    row.head = "fr-spec:v=8";
    row.target = "tiny";
    run(std::move(row));
}

RowId CaptureBuilder::run(RunRow row, ClockAnchorRow anchor) {
    has_run_ = true;
    has_prompt_ = false;
    add(rows_.run(std::move(row), vocab_, anchor));
    return ids().run;
}

RowId CaptureBuilder::prompt(PromptRow row) {
    need_run();
    has_prompt_ = true;
    add(rows_.prompt(std::move(row)));
    return ids().prompt;
}

RowId CaptureBuilder::prompt(std::string category) {
    PromptRow row;
    row.category = std::move(category);
    return prompt(std::move(row));
}

RowId CaptureBuilder::step(StepRecord record) {
    if (!has_prompt_) prompt();
    add(rows_.step(std::move(record)));
    return ids().step;
}

RowId CaptureBuilder::step(TimeNs start, TimeNs end, std::vector<SpanRow> spans, RoundRecord round,
                           Excluded excluded, TimeNs paused) {
    StepRecord record;
    record.step = {0, 0, static_cast<int>(ids().step) + 1, start, end, paused, excluded};
    record.spans = std::move(spans);
    record.rounds.push_back(std::move(round));
    return step(std::move(record));
}

void CaptureBuilder::spans(std::vector<SpanRow> rows) {
    add(SpansRecorded{rows_.spans(std::move(rows))});
}

void CaptureBuilder::end_prompt(int generated, TimeNs prefill) {
    PromptEnded ended;
    ended.prompt.id = ids().prompt;
    ended.prompt.run_id = ids().run;
    ended.prompt.generated_tokens = generated;
    ended.prompt.prefill_ns = prefill;
    add(ended);
}

void CaptureBuilder::add(Record record) {
    need_run();
    capture_.apply(record);
    records_.push_back(std::move(record));
}

Snapshot CaptureBuilder::snapshot() {
    need_run();
    return capture_.snapshot(++version_);
}

}  // namespace draftscope::testing
