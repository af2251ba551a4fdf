#include "storage/row_writer.h"

#include "storage/capture_file.h"

namespace draftscope::storage {

RowWriter::RowWriter(const Database& db)
    : db_(db),
      inserts_(db),
      run_end_(db.prepare("UPDATE run SET ended = ?2 WHERE id = ?1")),
      progress_(
          db.prepare("UPDATE prompt SET output = ?2, generated_tokens = ?3, prefill_ns = ?4 WHERE id = ?1")),
      find_step_(db.prepare("SELECT 1 FROM step WHERE id = ?")),
      find_round_(db.prepare("SELECT 1 FROM round WHERE id = ?")),
      nodes_(db),
      tops_(db),
      spans_(db),
      step_phases_(db) {
    // A prompt is written when it starts and again, complete, when it ends.
    inserts_.of<PromptRow>() = Insert<PromptRow>(db, "INSERT OR REPLACE");
    if (!inserts_ || !step_phases_ || !nodes_ || !tops_ || !spans_ || !run_end_ || !progress_ ||
        !find_step_ || !find_round_)
        fail();
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

void RowWriter::write(const Record& record) {
    std::visit([this](const auto& one) { add(one); }, record);
}

void RowWriter::add(const PromptEnded& ended) {
    pending_.erase(ended.prompt.id);
    insert(ended.prompt);
}

void RowWriter::add(const SpansRecorded& recorded) {
    for (const SpanRow& row : recorded.spans) {
        if (!has(find_step_, row.step_id) || !has(find_round_, row.round_id)) continue;
        hold(spans_, row);
        if (row.step_id != 0) step_phases_.mark_late(row.step_id);
    }
}

void RowWriter::add(const HeadEvaluated& evaluated) {
    for (const HeadEvalRow& row : evaluated.rows)
        if (has(find_round_, row.round_id)) insert(row);
}

void RowWriter::add(const NoteRow& row) {
    NoteRow note = row;
    if (!has(find_round_, row.round_id)) note.round_id = 0;
    insert(note);
}

void RowWriter::add(const std::vector<NvtxRangeRow>& rows) {
    for (const NvtxRangeRow& row : rows) insert(row);
}

void RowWriter::add(const std::vector<GpuOpRow>& rows) {
    for (const GpuOpRow& row : rows)
        if (has(find_step_, row.step_id)) insert(row);
}

void RowWriter::add(const RunStarted& started) {
    start_run(started.run, started.anchor);
    if (!started.vocab || !vocabs_.insert(started.vocab->id).second) return;
    VocabRow row;
    for (std::size_t i = 0; i < started.vocab->rows.size(); ++i) {
        row = started.vocab->rows[i];
        row.vocab_id = started.vocab->id;
        row.token_id = static_cast<TokenId>(i);
        insert(row);
    }
    if (failed()) vocabs_.erase(started.vocab->id);
}

void RowWriter::write_without_vocabulary(const RunStarted& started) {
    RunRow row = started.run;
    row.vocab_id = 0;
    if (started.vocab) vocabs_.erase(started.vocab->id);
    start_run(row, started.anchor);
}

void RowWriter::start_run(const RunRow& r, const ClockAnchorRow& first_anchor) {
    insert(r);
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
    insert(ClockAnchorRow{run_id, monotonic_ns, utc_ns, gpu_ns});
}

void RowWriter::add(const RunEnded& ended) {
    write_pending_progress();
    run(run_end_, ended.run_id, TextOrNull{to_text(ended.how)});
    anchor(ended.run_id, ended.end_ns, ended.anchor);
}

void RowWriter::update_prompt(const PromptRow& r) {
    Statement update = db_.prepare(
        "UPDATE prompt SET output = ?2, generated_tokens = ?3, prefill_ns = ?4, finish = ?5 WHERE id = ?1");
    if (!update) return fail();
    run(update, r.id, r.output, r.generated_tokens, r.prefill_ns, TextOrNull{to_text(r.finish)});
}

void RowWriter::add(const PromptProgress& progress) {
    for (const TokenRow& row : progress.tokens) insert(row);
    PromptProgress& newest = pending_[progress.prompt_id];
    newest = progress;
    newest.tokens.clear();
}

void RowWriter::write_pending_progress() {
    for (const auto& [id, p] : pending_) run(progress_, id, p.output, p.generated_tokens, p.prefill_ns);
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
    insert(LossRow{losses.run_id, losses.time_ns, std::string(kind), count - total.before});
    total.rowid = sqlite3_last_insert_rowid(db_.get());
}

void RowWriter::add(const StepRecord& record) {
    insert(record.step);
    for (const RoundRecord& row : record.rounds) add(row);
    for (const SpanRow& row : record.spans) hold(spans_, row);
    if (!failed()) step_phases_.hold(record.step, record.spans);
}

void RowWriter::flush() {
    if (failed()) return;
    if (nodes_.flush() != SQLITE_DONE || tops_.flush() != SQLITE_DONE || spans_.flush() != SQLITE_DONE ||
        step_phases_.flush() != SQLITE_DONE)
        fail();
}

void RowWriter::recompute_late_steps() {
    if (!failed() && step_phases_.recompute_late() != SQLITE_DONE) fail();
}

void RowWriter::add(const RoundRecord& record) {
    insert(record.round);
    for (const NodeRow& row : record.nodes) hold(nodes_, row);
    for (const NodeTopRow& row : record.tops) hold(tops_, row);
    for (const TokenRow& row : record.tokens) insert(row);
    for (const HeadEvalRow& row : record.head_evals) insert(row);
}

}  // namespace draftscope::storage
