#pragma once

#include <map>
#include <set>
#include <string>

#include "capture/record.h"
#include "storage/many_rows.h"
#include "storage/sql.h"
#include "storage/step_phase.h"

namespace draftscope::storage {

/// Rows of measurements that a writer did not keep, by reason, and where they belong.
struct WriterLosses {
    RowId run_id = 0;    ///< the run under way
    TimeNs time_ns = 0;  ///< of it, so far
    std::int64_t queue = 0, limit = 0, ring = 0, error = 0, vocabulary = 0;
};

/// Turns records into rows through prepared statements. Used by the writer thread alone, inside its
/// transactions. Rows of which a step has many are held, by pointer into their record, until `flush`. The
/// first failing statement sets `failed()`; everything after it is ignored.
class RowWriter {
  public:
    /// Prepares all inserts; the schema must exist.
    explicit RowWriter(const Database& db);

    /// `record` must stay where it is until the next `flush`.
    void write(const Record& record);
    /// Before every commit: inserts what is held.
    void flush();
    /// The run alone, its vocabulary unknown: where the disk has no room for that.
    void write_without_vocabulary(const RunStarted& started);
    /// After a rollback to `rows` rows: forgets the failure and what was held, so that less can be tried.
    void start_again(std::int64_t rows);
    /// The final state of a prompt whose row may be missing.
    void update_prompt(const PromptRow& row);
    /// Writes the prompt outputs held back by coalescing.
    void write_pending_progress();
    /// Brings the file's `loss` rows of the writer up to date: one of each kind per run.
    void write_losses(const WriterLosses& losses);
    /// From now on steps and rounds may be missing: late rows that name one are left out, notes keep their
    /// text.
    void expect_gaps() { gaps_ = true; }
    bool has_pending_progress() const { return !pending_.empty(); }
    /// Phases of steps whose spans came late; once the indexes are there.
    void redo_late_steps();
    bool failed() const { return error_ != SQLITE_OK; }
    const std::string& message() const { return message_; }
    std::int64_t rows() const { return rows_; }

  private:
    struct RunZero {
        TimeNs monotonic_ns = 0, utc_ns = 0;
    };
    struct Visitor;

    template <typename... Args>
    void insert(Statement& statement, const Args&... args) {
        if (failed()) return;
        if (statement.run(args...) != SQLITE_DONE) return fail();
        ++rows_;
    }
    template <typename Row>
    void hold(ManyRows<const Row*>& rows, const Row& row) {
        rows.add(&row);
        ++rows_;
    }
    void fail();
    /// Whether a late row's step or round (0 = none) is in the file.
    bool has(Statement& find, RowId id);
    void write_loss(const WriterLosses& losses, std::string_view kind, std::int64_t count);
    void start(const RunStarted& started);
    void run(const RunRow& row, const ClockAnchorRow& first_anchor);
    void end(const RunEnded& ended);
    /// Stores an anchor at `run_ns` of the run: with the first at 0, the last says when the run ended.
    void anchor(RowId run_id, TimeNs run_ns, const ClockAnchorRow& anchor);
    void prompt(const PromptRow& row);
    void progress(const PromptProgress& progress);
    void step(const StepRecord& record);
    void round(const RoundRecord& record);
    void token(const TokenRow& row);
    void head_eval(const HeadEvalRow& row);

    const Database& db_;
    Statement run_, run_end_, prompt_, progress_, step_, round_, token_, gpu_op_, gpu_counter_, nvtx_,
        head_eval_, counter_, loss_, anchor_, vocab_, note_, find_step_, find_round_;
    ManyRows<const NodeRow*> nodes_;
    ManyRows<const NodeTopRow*> tops_;
    ManyRows<const SpanRow*> spans_;
    StepPhaseRows step_phases_;
    std::map<RowId, RunZero> zero_;
    struct LossSoFar {
        std::int64_t rowid = 0, count = 0, before = 0;  ///< before: counted in the file's earlier runs
        RowId run_id = 0;
        bool unsure = false;  ///< its transaction may have been rolled back
    };
    std::map<std::string, LossSoFar, std::less<>> losses_;  ///< by kind
    std::set<RowId> vocabs_;
    std::map<RowId, PromptProgress> pending_;  ///< newest output of prompts being decoded, tokens taken out
    std::int64_t rows_ = 0;
    bool gaps_ = false;
    int error_ = SQLITE_OK;
    std::string message_;
};

}  // namespace draftscope::storage
