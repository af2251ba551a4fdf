#pragma once

#include <map>
#include <set>
#include <string>

#include "capture/record.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Turns records into rows through prepared statements. Used by the writer thread alone, inside its
/// transactions. The first failing statement sets `error()`; everything after it is ignored.
class RowWriter {
  public:
    /// Prepares all inserts; the schema must exist.
    explicit RowWriter(const Database& db);

    void write(const Record& record);
    /// Writes the prompt outputs held back by coalescing.
    void write_pending_progress();
    bool has_pending_progress() const { return !pending_.empty(); }
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
    void fail();
    void start(const RunStarted& started);
    void end(const RunEnded& ended);
    /// Stores an anchor at `run_ns` of the run: with the first at 0, the last says when the run ended.
    void anchor(RowId run_id, TimeNs run_ns, const ClockAnchorRow& anchor);
    void prompt(const PromptRow& row);
    void progress(const PromptProgress& progress);
    void step(const StepRecord& record);
    void round(const RoundRecord& record);
    void token(const TokenRow& row);
    void span(const SpanRow& row);
    void head_eval(const HeadEvalRow& row);

    const Database& db_;
    Statement run_, run_end_, prompt_, progress_, step_, round_, node_, node_top_, token_, span_, gpu_op_,
        nvtx_, head_eval_, counter_, loss_, anchor_, vocab_, note_;
    std::map<RowId, RunZero> zero_;
    std::set<RowId> vocabs_;
    std::map<RowId, PromptProgress> pending_;  ///< newest output of prompts being decoded, tokens taken out
    std::int64_t rows_ = 0;
    int error_ = SQLITE_OK;
    std::string message_;
};

}  // namespace draftscope::storage
