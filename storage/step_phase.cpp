#include "storage/step_phase.h"

#include <algorithm>
#include <tuple>

#include "capture/step_phases.h"

namespace draftscope::storage {

namespace {

constexpr const char* insert_sql = "INSERT INTO step_phase VALUES (?, ?, ?, ?, ?, ?)";
constexpr const char* spans_sql =
    "SELECT id, step_id, phase_id, lane, thread_id, start_ns, end_ns, bytes FROM span WHERE step_id ";

SpanRow span_from(const Statement& row) {
    SpanRow span;
    span.id = row.integer(0);
    span.step_id = row.integer(1);
    span.phase_id = static_cast<int>(row.integer(2));
    span.lane = static_cast<int>(row.integer(3));
    span.thread_id = static_cast<int>(row.integer(4));
    span.start_ns = row.integer(5);
    span.end_ns = row.integer(6);
    span.bytes = row.integer(7);
    return span;
}

StepRow step_from(const Statement& row) {
    StepRow step;
    step.id = row.integer(0);
    step.run_id = row.integer(1);
    step.start_ns = row.integer(2);
    step.end_ns = row.integer(3);
    step.paused_ns = row.integer(4);
    return step;
}
constexpr const char* steps_sql = "SELECT id, run_id, start_ns, end_ns, paused_ns FROM step ";

/// Visits every step with its spans, including late ones. `visit` returns an SQLite code; any code except
/// SQLITE_DONE stops the walk.
template <typename Visit>
int each_step(const Database& db, Visit visit) {
    Statement steps = db.prepare(std::string(steps_sql) + "ORDER BY id");
    Statement spans = db.prepare(std::string(spans_sql) + "IS NOT NULL ORDER BY step_id, id");
    if (!steps || !spans) return SQLITE_ERROR;
    int span_code = spans.step(), step_code = SQLITE_ROW;
    std::vector<SpanRow> own;
    while ((step_code = steps.step()) == SQLITE_ROW) {
        const StepRow step = step_from(steps);
        own.clear();
        for (; span_code == SQLITE_ROW && spans.integer(1) <= step.id; span_code = spans.step())
            if (spans.integer(1) == step.id) own.push_back(span_from(spans));
        if (const int code = visit(step, own); code != SQLITE_DONE) return code;
    }
    return step_code == SQLITE_DONE && (span_code == SQLITE_DONE || span_code == SQLITE_ROW) ? SQLITE_OK
                                                                                             : step_code;
}

int insert_rows(Statement& insert, const StepRow& step, const std::vector<SpanRow>& spans) {
    for (const StepPhaseRow& row : step_phase_rows(step, spans)) {
        const int code =
            insert.run(step.run_id, step.id, row.phase_id, row.busy_ns, row.exposed_ns, row.bytes);
        if (code != SQLITE_DONE) return code;
    }
    return SQLITE_DONE;
}

}  // namespace

StepPhaseRows::StepPhaseRows(const Database& db) : db_(db), rows_held_(db, "step_phase", 6) {}

void StepPhaseRows::hold(const StepRow& step, const std::vector<SpanRow>& spans) {
    for (const StepPhaseRow& phase : step_phase_rows(step, spans))
        rows_held_.add({step.run_id, step.id, phase});
}

int StepPhaseRows::flush() {
    return rows_held_.flush([](Statement& to, int first, const Row& row) {
        to.bind_from(first, row.run_id, row.step_id, row.phase.phase_id, row.phase.busy_ns,
                     row.phase.exposed_ns, row.phase.bytes);
    });
}

int StepPhaseRows::recompute_late() {
    if (late_.empty()) return SQLITE_DONE;
    Statement find = db_.prepare(std::string(steps_sql) + "WHERE id = ?");
    Statement spans = db_.prepare(std::string(spans_sql) + "= ? ORDER BY id");
    Statement remove = db_.prepare("DELETE FROM step_phase WHERE step_id = ?");
    Statement insert = db_.prepare(insert_sql);
    if (!find || !spans || !remove || !insert) return SQLITE_ERROR;
    for (const RowId id : late_) {
        find.bind(1, id);
        if (find.step() == SQLITE_ROW) {
            const StepRow step = step_from(find);
            std::vector<SpanRow> own;
            spans.bind(1, id);
            int code = SQLITE_ROW;
            while ((code = spans.step()) == SQLITE_ROW) own.push_back(span_from(spans));
            spans.reset();
            if (code == SQLITE_DONE) code = remove.run(id);
            if (code == SQLITE_DONE) code = insert_rows(insert, step, own);
            if (code != SQLITE_DONE) return code;
        }
        find.reset();
    }
    late_.clear();
    return SQLITE_DONE;
}

int fill_step_phase(const Database& db) {
    Statement insert = db.prepare(insert_sql);
    if (!insert) return SQLITE_ERROR;
    return each_step(db, [&](const StepRow& step, const std::vector<SpanRow>& spans) {
        return insert_rows(insert, step, spans);
    });
}

int wrong_step_phases(const Database& db, std::size_t limit, std::vector<RowId>& out) {
    using Row = std::tuple<int, TimeNs, TimeNs, std::int64_t>;
    Statement stored = db.prepare(
        "SELECT step_id, phase_id, busy_ns, exposed_ns, bytes FROM step_phase ORDER BY step_id, phase_id");
    if (!stored) return SQLITE_ERROR;
    int stored_code = stored.step();
    const int code = each_step(db, [&](const StepRow& step, const std::vector<SpanRow>& spans) {
        std::vector<Row> meant, found;
        for (const StepPhaseRow& row : step_phase_rows(step, spans))
            meant.emplace_back(row.phase_id, row.busy_ns, row.exposed_ns, row.bytes);
        for (; stored_code == SQLITE_ROW && stored.integer(0) <= step.id; stored_code = stored.step())
            if (stored.integer(0) == step.id)
                found.emplace_back(static_cast<int>(stored.integer(1)), stored.integer(2), stored.integer(3),
                                   stored.integer(4));
        std::sort(meant.begin(), meant.end());
        if (meant != found && out.size() < limit) out.push_back(step.id);
        return SQLITE_DONE;
    });
    return code;
}

}  // namespace draftscope::storage
