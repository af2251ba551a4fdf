#pragma once

#include <set>
#include <vector>

#include "capture/record.h"
#include "storage/table_sql.h"

namespace draftscope::storage {

/// Writes table `step_phase`: the time of each phase in each step. The rows are computed once from the step's
/// spans, as defined in capture/queries.h. Views over phases then read nine rows per step instead of every
/// span. If spans arrive late, their step's rows are rewritten.
class StepPhaseRows {
  public:
    explicit StepPhaseRows(const Database& db);
    /// Computes the rows and holds them until `flush`.
    void hold(const StepRow& step, const std::vector<SpanRow>& spans);
    /// Returns SQLITE_DONE or the error code.
    int flush();
    void discard() { rows_held_.discard(); }
    /// Marks a step with late spans. recompute_late() computes its rows again from table `span`.
    void mark_late(RowId step_id) { late_.insert(step_id); }
    /// Rewrites the rows of the marked steps. Fast only with the index over span(step_id). Returns
    /// SQLITE_DONE or the error code.
    int recompute_late();
    explicit operator bool() const { return static_cast<bool>(rows_held_); }

  private:
    const Database& db_;
    BatchInsert<StoredStepPhase, StoredStepPhase> rows_held_;
    std::set<RowId> late_;
};

/// Fills an empty table `step_phase` from all steps and spans. Returns SQLITE_OK or the error code.
int fill_step_phase(const Database& db);
/// Finds at most `limit` steps whose rows differ from their spans. Returns an SQLite code; on an error `out`
/// is empty.
int wrong_step_phases(const Database& db, std::size_t limit, std::vector<RowId>& out);

}  // namespace draftscope::storage
