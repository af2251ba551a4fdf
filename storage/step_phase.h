#pragma once

#include <set>
#include <vector>

#include "capture/record.h"
#include "capture/step_phases.h"
#include "storage/many_rows.h"

namespace draftscope::storage {

/// Table `step_phase`: what each phase took in each step, worked out once from the step's spans by the
/// definitions of capture/queries.h, so that the views over phases read nine rows a step and not every span.
/// Rewritten for a step whose spans come late.
class StepPhaseRows {
  public:
    explicit StepPhaseRows(const Database& db);
    /// Works the rows out and holds them until `flush`.
    void hold(const StepRow& step, const std::vector<SpanRow>& spans);
    /// SQLITE_DONE, or the error code.
    int flush();
    void discard() { rows_held_.discard(); }
    /// Steps with late spans since the last call; their rows are worked out anew from the table `span`.
    void came_late(RowId step_id) { late_.insert(step_id); }
    /// Needs the index over span(step_id) to be quick. SQLITE_DONE, or the error code.
    int redo_late();
    explicit operator bool() const { return static_cast<bool>(rows_held_); }

  private:
    struct Row {
        RowId run_id, step_id;
        StepPhaseRow phase;
    };
    const Database& db_;
    ManyRows<Row> rows_held_;
    std::set<RowId> late_;
};

/// Fills an empty table `step_phase` from all steps and spans. SQLITE_OK or the error code.
int fill_step_phase(const Database& db);
/// Steps whose rows are not what their spans say: at most `limit` ids. Empty on an error, with its code.
int wrong_step_phases(const Database& db, std::size_t limit, std::vector<RowId>& out);

}  // namespace draftscope::storage
