#pragma once

#include <string>

#include "storage/table_sql.h"

namespace draftscope::storage {

/// Reads a table once in recording order, with one row of look-ahead, from the start or from a rowid.
template <typename Row>
class Cursor {
  public:
    using RowType = Row;
    explicit Cursor(const Database& db, RowId after = 0)
        : Cursor(db.prepare(select_sql(db, table_text<Row>(), after_condition(table_text<Row>(), after)))) {}
    /// Reads the rows with one value of `column`.
    Cursor(const Database& db, std::string_view column, RowId value)
        : Cursor(db.prepare(select_sql(db, table_text<Row>(), fmt::format("{} = {}", column, value)))) {}
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
    explicit Cursor(Statement statement) : statement_(std::move(statement)) {
        if (!statement_) code_ = SQLITE_ERROR;
        advance();
    }
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
        row_ = read_row<Row>(statement_, problem_);
        has_ = problem_.empty();
        if (!has_) problem_ = fmt::format("table {}, row {}: {}", Table<Row>::name, count_, problem_);
    }

    Statement statement_;
    Row row_;
    std::int64_t count_ = 0;
    bool has_ = false;
    int code_ = SQLITE_OK;
    std::string problem_;
};

/// Returns the error of a Cursor, or of SpanOutlines.
template <typename Source>
Status read_status(const std::string& path, const Database& db, const Source& source) {
    if (!source.problem().empty())
        return bad_input("{}: damaged capture: {}, which is impossible", path, source.problem());
    if (source.code() == SQLITE_OK) return {};
    if constexpr (requires { source.failure(); })
        if (source.failure()) return *source.failure();
    return file_error(path, db, fmt::format("reading table {}", Table<typename Source::RowType>::name));
}

}  // namespace draftscope::storage
