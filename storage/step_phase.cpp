#include "storage/step_phase.h"

#include <algorithm>

#include "capture/record.h"

namespace draftscope::storage {

namespace {

/// A pass over rows of a table. `check` reports impossible values, so they are ignored here.
template <typename Row>
struct Pass {
    explicit Pass(const Database& db, std::string_view condition = {}, std::string_view order = {})
        : statement(db.prepare(select_sql(db, table_text<Row>(), condition, order))) {}
    /// Returns whether there is another row, which is then `row`.
    bool next() {
        code = statement.step();
        std::string ignored;
        if (code == SQLITE_ROW) row = read_row<Row>(statement, ignored);
        return code == SQLITE_ROW;
    }
    /// Starts again with another value of the condition's parameter.
    void restart(RowId parameter) {
        statement.reset();
        statement.bind(1, parameter);
    }

    Statement statement;
    int code = SQLITE_ERROR;
    Row row;
};

/// Moves the rows of one step to `out`. Earlier rows, which belong to no step, are skipped.
template <typename Row>
void take_step(Pass<Row>& from, RowId step_id, std::vector<Row>& out) {
    out.clear();
    for (; from.code == SQLITE_ROW && from.row.step_id <= step_id; from.next())
        if (from.row.step_id == step_id) out.push_back(from.row);
}

/// Visits every step with its spans, including late ones. `visit` returns an SQLite code; any code except
/// SQLITE_DONE stops the walk.
template <typename Visit>
int each_step(const Database& db, Visit visit) {
    Pass<StepRow> steps(db);
    Pass<SpanRow> spans(db, "step_id IS NOT NULL", "step_id, id");
    if (!steps.statement || !spans.statement) return SQLITE_ERROR;
    spans.next();
    std::vector<SpanRow> own;
    while (steps.next()) {
        take_step(spans, steps.row.id, own);
        if (const int code = visit(steps.row, own); code != SQLITE_DONE) return code;
    }
    const bool read = spans.code == SQLITE_DONE || spans.code == SQLITE_ROW;
    return steps.code == SQLITE_DONE && read ? SQLITE_OK : steps.code;
}

int insert_rows(Insert<StoredStepPhase>& insert, const StepRow& step, const std::vector<SpanRow>& spans) {
    for (const StepPhaseRow& row : step_phase_rows(step, spans))
        if (const int code = insert.run({row, step.run_id, step.id}); code != SQLITE_DONE) return code;
    return SQLITE_DONE;
}

}  // namespace

StepPhaseRows::StepPhaseRows(const Database& db) : db_(db), rows_held_(db) {}

void StepPhaseRows::hold(const StepRow& step, const std::vector<SpanRow>& spans) {
    for (const StepPhaseRow& row : step_phase_rows(step, spans)) rows_held_.add({row, step.run_id, step.id});
}

int StepPhaseRows::flush() {
    return rows_held_.flush();
}

int StepPhaseRows::recompute_late() {
    if (late_.empty()) return SQLITE_DONE;
    Pass<StepRow> steps(db_, "id = ?");
    Pass<SpanRow> spans(db_, "step_id = ?");
    Statement remove = db_.prepare("DELETE FROM step_phase WHERE step_id = ?");
    Insert<StoredStepPhase> insert(db_);
    if (!steps.statement || !spans.statement || !remove || !insert) return SQLITE_ERROR;
    for (const RowId id : late_) {
        steps.restart(id);
        if (!steps.next()) continue;
        spans.restart(id);
        std::vector<SpanRow> own;
        while (spans.next()) own.push_back(spans.row);
        int code = spans.code;
        if (code == SQLITE_DONE) code = remove.run(id);
        if (code == SQLITE_DONE) code = insert_rows(insert, steps.row, own);
        if (code != SQLITE_DONE) return code;
    }
    late_.clear();
    return SQLITE_DONE;
}

int fill_step_phase(const Database& db) {
    Insert<StoredStepPhase> insert(db);
    if (!insert) return SQLITE_ERROR;
    return each_step(db, [&](const StepRow& step, const std::vector<SpanRow>& spans) {
        return insert_rows(insert, step, spans);
    });
}

int wrong_step_phases(const Database& db, std::size_t limit, std::vector<RowId>& out) {
    const auto values = [](const auto& rows) {
        std::vector<StepPhaseRow> list(rows.begin(), rows.end());
        std::ranges::sort(list);
        return list;
    };
    Pass<StoredStepPhase> stored(db);
    if (!stored.statement) return SQLITE_ERROR;
    stored.next();
    std::vector<StoredStepPhase> found;
    return each_step(db, [&](const StepRow& step, const std::vector<SpanRow>& spans) {
        take_step(stored, step.id, found);
        if (values(step_phase_rows(step, spans)) != values(found) && out.size() < limit)
            out.push_back(step.id);
        return SQLITE_DONE;
    });
}

}  // namespace draftscope::storage
