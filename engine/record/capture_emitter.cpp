#include "engine/record/capture_emitter.h"

#include <utility>

namespace draftscope {
namespace {

constexpr TimeNs progress_interval = 50 * ns_per_ms;

}  // namespace

void set_ids(RoundRecord& record, RowId run, RowId step, RowId round) {
    record.round.id = round;
    record.round.run_id = run;
    record.round.step_id = step;
    for (NodeRow& row : record.nodes) row.round_id = round;
    for (NodeTopRow& row : record.tops) row.round_id = round;
    for (TokenRow& row : record.tokens) row.round_id = round;
    for (HeadEvalRow& row : record.head_evals) {
        row.run_id = run;
        row.round_id = round;
    }
}

std::optional<int> CaptureEmitter::rank(TokenId token) const {
    if (output_.ranks == nullptr || token < 0 || static_cast<std::size_t>(token) >= output_.ranks->size())
        return std::nullopt;
    return (*output_.ranks)[token];
}

void CaptureEmitter::start_prompt(PromptRow& prompt) {
    if (!on()) return;
    prompt.id = ++output_.ids->prompt;
    prompt.run_id = output_.run_id;
    output_.sink->push(PromptStarted{prompt});
}

void CaptureEmitter::prefill_done() {
    spans_.collect();
    if (on()) {
        SpansRecorded record{spans_.rows(output_.run_id, 0, 0)};
        for (SpanRow& span : record.spans) span.id = ++output_.ids->span;
        output_.sink->push(std::move(record));
    }
    spans_.clear();
}

void CaptureEmitter::progress(const PromptRow& prompt, const std::string& output,
                              std::vector<TokenRow> tokens) {
    if (!on()) return;
    output_.sink->push(
        PromptProgress{prompt.id, output, prompt.generated_tokens, prompt.prefill_ns, std::move(tokens)});
}

bool CaptureEmitter::progress_due() {
    const TimeNs now = monotonic_ns();
    if (!on() || now - last_progress_ < progress_interval) return false;
    last_progress_ = now;
    return true;
}

void CaptureEmitter::end_prompt(const PromptRow& prompt) {
    if (on()) output_.sink->push(PromptEnded{prompt});
}

void CaptureEmitter::step(StepRow step, std::vector<RoundRecord> rounds) {
    if (!on()) return spans_.clear();
    RowIds& ids = *output_.ids;
    step.id = ++ids.step;
    step.run_id = output_.run_id;
    step.ordinal = steps_++;
    for (RoundRecord& round : rounds) {
        set_ids(round, output_.run_id, step.id, ++ids.round);
        round.round.start_ns = step.start_ns;
        round.round.end_ns = step.end_ns;
    }
    StepRecord record;
    record.spans = spans_.rows(output_.run_id, step.id, rounds.size() == 1 ? ids.round : 0);
    for (SpanRow& span : record.spans) span.id = ++ids.span;
    record.step = step;
    record.rounds = std::move(rounds);
    output_.sink->push(std::move(record));
    spans_.clear();
    push_losses();
    if (std::exchange(live_shown_, false)) output_.sink->push(LiveRound{});
}

void CaptureEmitter::live(LiveRound round) {
    if (!on()) return;
    spans_.collect();
    const RowIds& ids = *output_.ids;
    round.active = true;
    round.step.id = ids.step + 1;
    round.step.run_id = output_.run_id;
    round.step.ordinal = steps_;
    set_ids(round.partial, output_.run_id, round.step.id, ids.round + 1);
    round.spans = spans_.rows(output_.run_id, round.step.id, ids.round + 1);
    output_.sink->push(std::move(round));
    live_shown_ = true;
}

void CaptureEmitter::pauses(std::span<const DebugGate::Pause> pauses) {
    if (!on()) return;
    for (const DebugGate::Pause& pause : pauses) {
        const TimeNs start = spans_.to_run_time(pause.start_ticks);
        output_.sink->push(CounterRow{output_.run_id, start, std::string(pause_counter),
                                      static_cast<double>(spans_.to_run_time(pause.end_ticks) - start)});
    }
}

void CaptureEmitter::evaluated(std::vector<HeadEvalRow> rows) {
    if (on() && !rows.empty()) output_.sink->push(HeadEvaluated{std::move(rows)});
}

void CaptureEmitter::note(RowId round_id, std::string text) {
    if (on())
        output_.sink->push(
            NoteRow{output_.run_id, round_id, spans_.to_run_time(ticks_now()), std::move(text)});
}

void CaptureEmitter::push_losses() {
    const std::uint64_t dropped = spans_.take_dropped();
    if (dropped > 0)
        output_.sink->push(LossRow{output_.run_id, spans_.to_run_time(ticks_now()), "span_ring_full",
                                   static_cast<std::int64_t>(dropped)});
}

}  // namespace draftscope
