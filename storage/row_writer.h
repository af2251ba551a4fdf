#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "capture/record.h"
#include "storage/sql.h"
#include "storage/step_phase.h"
#include "storage/table_sql.h"

namespace draftscope::storage {

/// Numbers of measurement rows that a writer did not keep, by reason, and the run they belong to.
struct WriterLosses {
    RowId run_id = 0;    ///< the current run
    TimeNs time_ns = 0;  ///< time in that run
    std::int64_t queue = 0, limit = 0, ring = 0, error = 0, vocabulary = 0;
};

/// Writes records as rows through prepared statements, within the writer thread's transactions. Tables with
/// many rows per step are buffered until `flush`, by pointer into the record. The first failing statement
/// sets `failed()`; later calls are ignored.
class RowWriter {
  public:
    /// Prepares all inserts. The schema must exist.
    explicit RowWriter(const Database& db);

    /// `record` must stay at its address until the next `flush`.
    void write(const Record& record);
    /// Inserts the buffered rows. Call before every commit.
    void flush();
    /// Writes the run without its vocabulary, for a disk without space for it.
    void write_without_vocabulary(const RunStarted& started);
    /// Call after a rollback to `rows` rows. Clears the failure and the buffered rows, so that a smaller
    /// write can be tried.
    void restart_after_rollback(std::int64_t rows);
    /// Writes the final state of a prompt whose row may be missing.
    void update_prompt(const PromptRow& row);
    /// Writes the prompt outputs that coalescing has delayed.
    void write_pending_progress();
    /// Updates the writer's rows in table `loss`: one per kind and run.
    void write_losses(const WriterLosses& losses);
    /// Allows for missing steps and rounds: late rows that refer to one are skipped, and notes keep their
    /// text.
    void expect_gaps() { gaps_ = true; }
    bool has_pending_progress() const { return !pending_.empty(); }
    /// Updates the phases of steps with late spans. Call after the indexes are built.
    void recompute_late_steps();
    bool failed() const { return error_ != SQLITE_OK; }
    const std::string& message() const { return message_; }
    std::int64_t rows() const { return rows_; }

  private:
    struct RunZero {
        TimeNs monotonic_ns = 0, utc_ns = 0;
    };

    template <typename... Rows>
    struct Inserts {
        explicit Inserts(const Database& db) : all(Insert<Rows>(db)...) {}
        explicit operator bool() const { return (static_cast<bool>(std::get<Insert<Rows>>(all)) && ...); }
        template <typename Row>
        Insert<Row>& of() {
            return std::get<Insert<Row>>(all);
        }
        std::tuple<Insert<Rows>...> all;
    };

    template <typename Row>
    void insert(const Row& row) {
        if (!failed()) count(inserts_.of<Row>().run(row));
    }
    template <typename... Args>
    void run(Statement& statement, const Args&... args) {
        if (!failed()) count(statement.run(args...));
    }
    void count(int code) {
        if (code != SQLITE_DONE) return fail();
        ++rows_;
    }
    template <typename Row>
    void hold(BatchInsert<Row>& rows, const Row& row) {
        rows.add(&row);
        ++rows_;
    }
    void fail();
    /// Returns whether the step or round of a late row is in the file (0 = none).
    bool has(Statement& find, RowId id);
    void write_loss(const WriterLosses& losses, std::string_view kind, std::int64_t count);
    void start_run(const RunRow& row, const ClockAnchorRow& first_anchor);
    /// Stores an anchor at `run_ns` of the run. The first one is at 0; the last one marks the run's end.
    void anchor(RowId run_id, TimeNs run_ns, const ClockAnchorRow& anchor);
    void add(const RunStarted& started);
    void add(const RunEnded& ended);
    void add(const PromptStarted& started) { insert(started.prompt); }
    void add(const PromptProgress& progress);
    void add(const PromptEnded& ended);
    void add(const StepRecord& record);
    void add(const RoundRecord& record);
    void add(const LiveRound&) {}
    void add(const SpansRecorded& recorded);
    void add(const HeadEvaluated& evaluated);
    void add(const LossRow& row) { insert(row); }
    void add(const CounterRow& row) { insert(row); }
    void add(const NoteRow& row);
    void add(const std::vector<NvtxRangeRow>& rows);
    void add(const std::vector<GpuOpRow>& rows);

    const Database& db_;
    Inserts<RunRow, PromptRow, StepRow, RoundRow, TokenRow, GpuOpRow, NvtxRangeRow, HeadEvalRow, CounterRow,
            LossRow, ClockAnchorRow, VocabRow, NoteRow>
        inserts_;
    Statement run_end_, progress_, find_step_, find_round_;
    BatchInsert<NodeRow> nodes_;
    BatchInsert<NodeTopRow> tops_;
    BatchInsert<SpanRow> spans_;
    StepPhaseRows step_phases_;
    std::map<RowId, RunZero> zero_;
    struct LossTotal {
        std::int64_t rowid = 0, count = 0, before = 0;  ///< `before`: counted in earlier runs of the file
        RowId run_id = 0;
        bool unsure = false;  ///< its transaction may have been rolled back
    };
    std::map<std::string, LossTotal, std::less<>> losses_;  ///< by kind
    std::set<RowId> vocabs_;
    std::map<RowId, PromptProgress> pending_;  ///< newest output of decoding prompts, without tokens
    std::int64_t rows_ = 0;
    bool gaps_ = false;
    int error_ = SQLITE_OK;
    std::string message_;
};

}  // namespace draftscope::storage
