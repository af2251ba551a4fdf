#include "storage/row_writer.h"

#include <type_traits>

#include "capture/run_setting.h"
#include "storage/capture_file.h"

namespace draftscope::storage {

namespace {

Statement insert_into(const Database& db, std::string_view table, int columns) {
    std::string sql = fmt::format("INSERT INTO {} VALUES (?", table);
    for (int i = 1; i < columns; ++i) sql += ", ?";
    return db.prepare(sql + ")");
}

std::optional<int> null_if_negative(int value) {
    return value < 0 ? std::nullopt : std::optional(value);
}

}  // namespace

RowWriter::RowWriter(const Database& db)
    : db_(db),
      run_(insert_into(db, "run", 26)),
      run_end_(db.prepare("UPDATE run SET ended = ?2 WHERE id = ?1")),
      // A prompt is written when it starts and again, complete, when it ends.
      prompt_(db.prepare("INSERT OR REPLACE INTO prompt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")),
      progress_(
          db.prepare("UPDATE prompt SET output = ?2, generated_tokens = ?3, prefill_ns = ?4 WHERE id = ?1")),
      step_(insert_into(db, "step", 7)),
      round_(insert_into(db, "round", 14)),
      token_(insert_into(db, "token", 8)),
      gpu_op_(insert_into(db, "gpu_op", 15)),
      gpu_counter_(insert_into(db, "gpu_counter", 5)),
      nvtx_(insert_into(db, "nvtx_range", 7)),
      head_eval_(insert_into(db, "head_eval", 11)),
      counter_(insert_into(db, "counter", 4)),
      loss_(insert_into(db, "loss", 4)),
      anchor_(insert_into(db, "clock_anchor", 4)),
      vocab_(insert_into(db, "vocab", 6)),
      note_(insert_into(db, "note", 4)),
      find_step_(db.prepare("SELECT 1 FROM step WHERE id = ?")),
      find_round_(db.prepare("SELECT 1 FROM round WHERE id = ?")),
      nodes_(db, "node", 13),
      tops_(db, "node_top", 5),
      spans_(db, "span", 12),
      step_phases_(db) {
    if (!step_phases_ || !nodes_ || !tops_ || !spans_) fail();
    for (const Statement* statement :
         {&run_, &run_end_, &prompt_, &progress_, &step_, &round_, &token_, &gpu_op_, &gpu_counter_, &nvtx_,
          &head_eval_, &counter_, &loss_, &anchor_, &vocab_, &note_, &find_step_, &find_round_})
        if (!*statement) fail();
}

void RowWriter::fail() {
    if (failed()) return;
    error_ = sqlite3_extended_errcode(db_.get());
    if (error_ == SQLITE_OK) error_ = SQLITE_ERROR;
    message_ = db_.message();
}

bool RowWriter::has(Statement& find, RowId id) {
    if (!gaps_ || id == 0) return true;
    find.bind(1, id);
    const bool found = find.step() == SQLITE_ROW;
    find.reset();
    return found;
}

struct RowWriter::Visitor {
    RowWriter& out;

    void operator()(const RunStarted& started) { out.start(started); }
    void operator()(const RunEnded& ended) { out.end(ended); }
    void operator()(const PromptStarted& started) { out.prompt(started.prompt); }
    void operator()(const PromptProgress& progress) { out.progress(progress); }
    void operator()(const PromptEnded& ended) {
        out.pending_.erase(ended.prompt.id);
        out.prompt(ended.prompt);
    }
    void operator()(const StepRecord& record) { out.step(record); }
    void operator()(const LiveRound&) {}
    void operator()(const SpansRecorded& recorded) {
        for (const SpanRow& row : recorded.spans) {
            if (!out.has(out.find_step_, row.step_id) || !out.has(out.find_round_, row.round_id)) continue;
            out.hold(out.spans_, row);
            if (row.step_id != 0) out.step_phases_.mark_late(row.step_id);
        }
    }
    void operator()(const HeadEvaluated& evaluated) {
        for (const HeadEvalRow& row : evaluated.rows)
            if (out.has(out.find_round_, row.round_id)) out.head_eval(row);
    }
    void operator()(const LossRow& r) { out.insert(out.loss_, r.run_id, r.time_ns, r.kind, r.count); }
    void operator()(const CounterRow& r) { out.insert(out.counter_, r.run_id, r.time_ns, r.name, r.value); }
    void operator()(const NoteRow& r) {
        const RowId round_id = out.has(out.find_round_, r.round_id) ? r.round_id : 0;
        out.insert(out.note_, r.run_id, IdOrNull{round_id}, r.time_ns, r.text);
    }
    void operator()(const std::vector<NvtxRangeRow>& rows) {
        for (const NvtxRangeRow& r : rows)
            out.insert(out.nvtx_, r.run_id, r.domain, r.name, r.thread_id, r.start_ns, r.end_ns, r.payload);
    }
    void operator()(const std::vector<GpuOpRow>& rows) {
        for (const GpuOpRow& r : rows)
            if (out.has(out.find_step_, r.step_id))
                out.insert(out.gpu_op_, IdOrNull{r.id}, r.run_id, IdOrNull{r.step_id}, r.phase_id, r.stream,
                           r.name, r.start_ns, r.end_ns, r.graph_node_id, r.correlation_id, r.grid, r.block,
                           r.bytes, r.device, r.registers);
    }
    void operator()(const std::vector<GpuCounterRow>& rows) {
        for (const GpuCounterRow& r : rows)
            if (r.step_id != 0 && out.has(out.find_step_, r.step_id))
                out.insert(out.gpu_counter_, r.run_id, r.step_id, r.phase_id, r.name, r.value);
    }
};

void RowWriter::write(const Record& record) {
    std::visit(Visitor{*this}, record);
}

void RowWriter::start(const RunStarted& started) {
    run(started.run, started.anchor);
    if (!started.vocab || !vocabs_.insert(started.vocab->id).second) return;
    for (std::size_t i = 0; i < started.vocab->rows.size(); ++i) {
        const VocabRow& v = started.vocab->rows[i];
        insert(vocab_, started.vocab->id, static_cast<std::int64_t>(i), Blob{v.bytes}, v.text, v.rank,
               v.count);
    }
    if (failed()) vocabs_.erase(started.vocab->id);
}

void RowWriter::write_without_vocabulary(const RunStarted& started) {
    RunRow row = started.run;
    row.vocab_id = 0;
    if (started.vocab) vocabs_.erase(started.vocab->id);
    run(row, started.anchor);
}

void RowWriter::run(const RunRow& r, const ClockAnchorRow& first_anchor) {
    insert(run_, r.id, r.name, r.started_utc, TextOrNull{to_text(r.ended)}, r.frontend, r.target, r.drafter,
           r.head, r.tree, r.verify, r.temperature, static_cast<std::int64_t>(r.seed), r.batch, r.threads,
           r.backend, r.precision, r.numerics, r.tier, r.synthetic, r.acceptance, IdOrNull{r.vocab_id},
           r.config_json, r.machine_json, plain_setting(r), head_setting(r), is_baseline(r));
    // The run's time zero is its first anchor. If the clocks were read later, both are shifted by the
    // difference.
    RunZero zero{r.started_monotonic, 0};
    if (first_anchor.utc_ns != 0)
        zero.utc_ns = first_anchor.utc_ns + (zero.monotonic_ns - first_anchor.monotonic_ns);
    zero_[r.id] = zero;
    anchor(r.id, 0, first_anchor);
}

void RowWriter::restart_after_rollback(std::int64_t rows) {
    rows_ = rows;
    error_ = SQLITE_OK;
    message_.clear();
    pending_.clear();
    for (auto& [kind, total] : losses_) total.unsure = true;
    nodes_.discard();
    tops_.discard();
    spans_.discard();
    step_phases_.discard();
}

void RowWriter::anchor(RowId run_id, TimeNs run_ns, const ClockAnchorRow& anchor) {
    const RunZero zero = zero_[run_id];
    const TimeNs monotonic_ns = zero.monotonic_ns + run_ns;
    TimeNs utc_ns = zero.utc_ns + run_ns;
    std::optional<TimeNs> gpu_ns;
    if (anchor.utc_ns != 0) utc_ns = anchor.utc_ns + (monotonic_ns - anchor.monotonic_ns);
    if (anchor.gpu_ns) gpu_ns = *anchor.gpu_ns + (monotonic_ns - anchor.monotonic_ns);
    insert(anchor_, run_id, monotonic_ns, utc_ns, gpu_ns);
}

void RowWriter::end(const RunEnded& ended) {
    write_pending_progress();
    insert(run_end_, ended.run_id, TextOrNull{to_text(ended.how)});
    anchor(ended.run_id, ended.end_ns, ended.anchor);
}

void RowWriter::prompt(const PromptRow& r) {
    insert(prompt_, r.id, r.run_id, r.ordinal, r.external_id, r.turn, r.suite, r.category, r.text, r.output,
           r.prompt_tokens, r.generated_tokens, r.prefill_ns, TextOrNull{to_text(r.finish)});
}

void RowWriter::update_prompt(const PromptRow& r) {
    Statement update = db_.prepare(
        "UPDATE prompt SET output = ?2, generated_tokens = ?3, prefill_ns = ?4, finish = ?5 WHERE id = ?1");
    if (!update) return fail();
    insert(update, r.id, r.output, r.generated_tokens, r.prefill_ns, TextOrNull{to_text(r.finish)});
}

void RowWriter::progress(const PromptProgress& progress) {
    for (const TokenRow& row : progress.tokens) token(row);
    PromptProgress& newest = pending_[progress.prompt_id];
    newest = progress;
    newest.tokens.clear();
}

void RowWriter::write_pending_progress() {
    for (const auto& [id, p] : pending_) insert(progress_, id, p.output, p.generated_tokens, p.prefill_ns);
    pending_.clear();
}

void RowWriter::write_losses(const WriterLosses& losses) {
    write_loss(losses, loss_queue_full, losses.queue);
    write_loss(losses, loss_limit, losses.limit);
    write_loss(losses, loss_ring, losses.ring);
    write_loss(losses, loss_error, losses.error);
    write_loss(losses, loss_vocabulary, losses.vocabulary);
}

void RowWriter::write_loss(const WriterLosses& losses, std::string_view kind, std::int64_t count) {
    if (losses.run_id == 0) return;
    LossTotal& total = losses_[std::string(kind)];
    if (count == total.count && !(total.unsure && count > total.before)) return;
    total.unsure = false;
    if (total.run_id != losses.run_id) total = {0, total.count, total.count, losses.run_id};
    total.count = count;
    if (total.rowid != 0) {
        const int code =
            db_.exec(fmt::format("UPDATE loss SET time_ns = {}, count = {} WHERE rowid = {} AND kind = {}",
                                 losses.time_ns, count - total.before, total.rowid, sql_quoted(kind, '\'')));
        if (code != SQLITE_OK) return fail();
        if (sqlite3_changes64(db_.get()) > 0) return;
    }
    // The first loss of its kind, or its transaction was rolled back.
    insert(loss_, losses.run_id, losses.time_ns, kind, count - total.before);
    total.rowid = sqlite3_last_insert_rowid(db_.get());
}

void RowWriter::step(const StepRecord& record) {
    const StepRow& r = record.step;
    insert(step_, r.id, r.run_id, r.ordinal, r.start_ns, r.end_ns, r.paused_ns,
           TextOrNull{to_text(r.excluded)});
    for (const RoundRecord& row : record.rounds) round(row);
    for (const SpanRow& row : record.spans) hold(spans_, row);
    if (!failed()) step_phases_.hold(r, record.spans);
}

void RowWriter::flush() {
    if (failed()) return;
    const auto node = [](Statement& to, int first, const NodeRow* n) {
        to.bind_from(first, n->round_id, n->node, null_if_negative(n->parent), n->depth, n->token_id,
                     n->draft_logprob, n->cum_logprob, n->target_prob, n->target_rank, n->accepted,
                     null_if_negative(n->target_token_id), n->target_token_prob, n->target_covered);
    };
    const auto top = [](Statement& to, int first, const NodeTopRow* t) {
        to.bind_from(first, t->round_id, t->node, t->rank, t->token_id, t->target_prob);
    };
    const auto span = [](Statement& to, int first, const SpanRow* s) {
        to.bind_from(first, IdOrNull{s->id}, s->run_id, IdOrNull{s->step_id}, IdOrNull{s->round_id},
                     s->phase_id, s->level, s->lane, s->thread_id, s->start_ns, s->end_ns, s->rows, s->bytes);
    };
    if (nodes_.flush(node) != SQLITE_DONE || tops_.flush(top) != SQLITE_DONE ||
        spans_.flush(span) != SQLITE_DONE || step_phases_.flush() != SQLITE_DONE)
        fail();
}

void RowWriter::recompute_late_steps() {
    if (!failed() && step_phases_.recompute_late() != SQLITE_DONE) fail();
}

void RowWriter::round(const RoundRecord& record) {
    const RoundRow& r = record.round;
    insert(round_, r.id, r.run_id, r.step_id, r.prompt_id, r.ordinal, r.start_ns, r.end_ns, r.context_length,
           r.tree_nodes, r.tree_depth, r.drafted, r.accepted, r.committed, r.clipped);
    for (const NodeRow& row : record.nodes) hold(nodes_, row);
    for (const NodeTopRow& row : record.tops) hold(tops_, row);
    for (const TokenRow& row : record.tokens) token(row);
    for (const HeadEvalRow& row : record.head_evals) head_eval(row);
}

void RowWriter::token(const TokenRow& r) {
    insert(token_, r.prompt_id, r.position, IdOrNull{r.round_id}, r.token_id, to_text(r.source), r.depth,
           r.rank, r.covered);
}

void RowWriter::head_eval(const HeadEvalRow& r) {
    insert(head_eval_, r.run_id, IdOrNull{r.round_id}, r.head, to_text(r.mode), r.active_rows, r.bytes,
           r.head_ns, r.accepted, r.committed, r.covered, r.covered_mass);
}

}  // namespace draftscope::storage
