#pragma once

#include <limits>
#include <optional>
#include <string>

#include "capture/record.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Typed access to the current row of a statement. If a value does not fit its field, problem() describes it;
/// the value is not truncated.
class Fields {
  public:
    explicit Fields(Statement& statement) : statement_(statement) {}

    RowId id(int column) { return statement_.integer(column); }  ///< returns 0 for NULL
    std::int64_t i64(int column) { return statement_.integer(column); }
    int i32(int column) {
        return in_range(column, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
    }
    /// Returns -1 for NULL.
    int index(int column) { return statement_.is_null(column) ? -1 : in_range(column, 0, 1 << 30); }
    int in_range(int column, std::int64_t low, std::int64_t high);
    bool flag(int column) { return statement_.integer(column) != 0; }
    double real(int column);  ///< returns NaN for NULL
    std::string text(int column) { return std::string(statement_.text(column)); }
    std::string blob(int column) { return std::string(statement_.blob(column)); }
    std::optional<int> optional_i32(int column) {
        return statement_.is_null(column) ? std::nullopt : std::optional(i32(column));
    }
    std::optional<std::int64_t> optional_i64(int column) {
        return statement_.is_null(column) ? std::nullopt : std::optional(statement_.integer(column));
    }
    std::optional<double> optional_real(int column) {
        return statement_.is_null(column) ? std::nullopt : std::optional(statement_.real(column));
    }
    std::optional<float> optional_float(int column) {
        return statement_.is_null(column) ? std::nullopt
                                          : std::optional(static_cast<float>(statement_.real(column)));
    }
    template <typename Enum>
    Enum choice(int column, std::optional<Enum> (*from)(std::string_view)) {
        const std::optional<Enum> value = from(statement_.text(column));
        if (!value) set_problem(column);
        return value.value_or(Enum{});
    }
    const std::string& problem() const { return problem_; }

  private:
    void set_problem(int column);

    Statement& statement_;
    std::string problem_;
};

/// Reads one row type. `select` lists the columns that `read` expects, in recording order.
template <typename Row>
struct RowSource;

/// One row of step_phase with its step.
struct StoredStepPhase : StepPhaseRow {
    RowId step_id = 0;
};

#define DS_ROW_SOURCE(Row)               \
    template <>                          \
    struct RowSource<Row> {              \
        static const char* const table;  \
        static const char* const sql;    \
        static Row read(Fields& fields); \
    }
DS_ROW_SOURCE(RunRow);
DS_ROW_SOURCE(PromptRow);
DS_ROW_SOURCE(StepRow);
DS_ROW_SOURCE(RoundRow);
DS_ROW_SOURCE(NodeRow);
DS_ROW_SOURCE(NodeTopRow);
DS_ROW_SOURCE(TokenRow);
DS_ROW_SOURCE(SpanRow);
DS_ROW_SOURCE(StoredStepPhase);
DS_ROW_SOURCE(GpuOpRow);
DS_ROW_SOURCE(GpuCounterRow);
DS_ROW_SOURCE(NvtxRangeRow);
DS_ROW_SOURCE(HeadEvalRow);
DS_ROW_SOURCE(CounterRow);
DS_ROW_SOURCE(LossRow);
DS_ROW_SOURCE(ClockAnchorRow);
DS_ROW_SOURCE(VocabRow);
DS_ROW_SOURCE(NoteRow);
#undef DS_ROW_SOURCE

/// Returns `select` limited to rows beyond `after`. Columns that files of earlier versions lack read as 0.
std::string select_after(const Database& db, std::string select, RowId after);
/// Returns `select` limited to the rows with one value of `column`.
std::string select_where(std::string select, std::string_view column);

/// Reads a table once in recording order, with one row of look-ahead, from the start or from a rowid.
template <typename Row>
class Cursor {
  public:
    using RowType = Row;
    explicit Cursor(const Database& db, RowId after = 0)
        : Cursor(db.prepare(select_after(db, RowSource<Row>::sql, after))) {}
    explicit Cursor(Statement statement) : statement_(std::move(statement)) {
        if (!statement_) code_ = SQLITE_ERROR;
        advance();
    }
    /// Constructs a cursor without rows.
    Cursor() = default;
    bool has() const { return has_; }
    const Row& peek() const { return row_; }
    Row take() {
        Row row = std::move(row_);
        advance();
        return row;
    }
    /// SQLITE_OK if no error occurred.
    int code() const { return code_; }
    /// Describes the first impossible value ("table span, row 12: column phase_id holds 99"); empty if there
    /// is none.
    const std::string& problem() const { return problem_; }

  private:
    void advance() {
        has_ = false;
        if (code_ != SQLITE_OK || !problem_.empty()) return;
        const int code = statement_.step();
        if (code == SQLITE_DONE) return;
        if (code != SQLITE_ROW) {
            code_ = code;
            return;
        }
        ++count_;
        Fields fields(statement_);
        row_ = RowSource<Row>::read(fields);
        if (!fields.problem().empty())
            problem_ = fmt::format("table {}, row {}: {}", RowSource<Row>::table, count_, fields.problem());
        else
            has_ = true;
    }

    Statement statement_;
    Row row_;
    std::int64_t count_ = 0;
    bool has_ = false;
    int code_ = SQLITE_OK;
    std::string problem_;
};

}  // namespace draftscope::storage
