#pragma once

#include <fmt/format.h>

#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "storage/sql.h"
#include "storage/tables.h"

/// SQL, binding and reading of the tables that storage/tables.h describes.
namespace draftscope::storage {

/// A table's description as text, from which its SQL is made.
struct TableText {
    struct Column {
        std::string_view name;
        std::string definition;  ///< "name TEXT NOT NULL"
        int since = 0;
        std::string_view fallback;
        bool is_computed = false;
    };
    std::string_view name, primary_key, order;
    int since = 1;
    std::vector<Column> columns;
};

/// Returns CREATE TABLE for a file of schema version `version`.
std::string create_sql(const TableText& table, int version);
/// Returns an INSERT of `rows` rows with a parameter for each value.
std::string insert_sql(const TableText& table, int rows = 1, std::string_view verb = "INSERT");
/// Returns a SELECT of all stored fields, in recording order or `order`. Columns that a file of an earlier
/// version lacks are replaced by their default.
std::string select_sql(const Database& db, const TableText& table, std::string_view condition = {},
                       std::string_view order = {});
/// Returns a condition on rows that follow id or rowid `after`; empty for 0.
std::string after_condition(const TableText& table, RowId after);
/// Returns CREATE TABLE of all tables, in the order of the file.
std::string tables_sql();
/// Returns the described tables, in the order of the file.
const std::vector<const TableText*>& all_tables();
/// Returns the statements that add the tables and columns of schema version `version` to an older file.
std::string added_sql(int version);

namespace detail {

template <typename Value>
Value required(const std::optional<Value>*);
template <typename Value>
Value required(const Value*);
/// The type of a field's value, without std::optional.
template <typename Field>
using ValueOf = decltype(required(static_cast<const Field*>(nullptr)));

/// Returns the texts of an enum's values as an SQL list. The empty text, stored as NULL, is left out.
template <typename Enum>
std::string choices_sql() {
    std::string out;
    for (int i = 0;; ++i) {
        const std::string_view text = to_text(static_cast<Enum>(i));
        if (text.empty() && i > 0) return out;
        if (!text.empty()) out += (out.empty() ? "" : ", ") + sql_quoted(text, '\'');
    }
}

template <typename Row, typename Field>
std::string definition_sql(const Column<Row, Field>& column) {
    using Value = ValueOf<Field>;
    std::string out(column.name);
    bool nullable = !std::is_same_v<Value, Field> || column.null_if_none;
    std::string check;
    if constexpr (std::is_enum_v<Value>) {
        nullable = to_text(Value{}).empty();
        check = choices_sql<Value>();
        out += " TEXT";
    } else if constexpr (std::is_same_v<Value, std::string>) {
        out += column.is_blob ? " BLOB" : " TEXT";
    } else if constexpr (std::is_floating_point_v<Value>) {
        nullable = true;
        out += " REAL";
    } else {
        if (std::is_same_v<Value, bool>) check = "0, 1";
        out += " INTEGER";
    }
    if (column.is_key) return out + " PRIMARY KEY";
    if (!nullable) out += " NOT NULL";
    if (!column.fallback.empty()) out += fmt::format(" DEFAULT {}", column.fallback);
    if (!column.refers.empty()) out += fmt::format(" REFERENCES {}(id)", column.refers);
    if (!check.empty()) out += fmt::format(" CHECK ({} IN ({}))", column.name, check);
    return out;
}

/// Reads a value of the current result row. Returns false if it does not fit the field.
template <typename Column, typename Field>
bool read_value(const Statement& from, int at, const Column& column, Field& to) {
    if constexpr (!std::is_same_v<ValueOf<Field>, Field>) {
        to.reset();
        return from.is_null(at) || read_value(from, at, column, to.emplace());
    } else if constexpr (std::is_enum_v<Field>) {
        const std::optional<Field> value = column.parse(from.text(at));
        to = value.value_or(Field{});
        return value.has_value();
    } else if constexpr (std::is_same_v<Field, int>) {
        const bool none = column.null_if_none && from.is_null(at);
        const std::int64_t value = none ? -1 : from.integer(at);
        to = static_cast<int>(value);
        return none || (value >= column.low && value <= column.high);
    } else if constexpr (std::is_floating_point_v<Field>) {
        to = from.is_null(at) ? std::numeric_limits<Field>::quiet_NaN() : static_cast<Field>(from.real(at));
    } else if constexpr (std::is_same_v<Field, std::string>) {
        to = column.is_blob ? from.blob(at) : from.text(at);
    } else {
        to = static_cast<Field>(from.integer(at));
    }
    return true;
}
/// Describes a value that does not fit: "column phase_id holds 99".
std::string impossible_value(const Statement& from, int at, std::string_view column);

}  // namespace detail

/// Returns the description of a row's table as text.
template <typename Row>
const TableText& table_text() {
    static const TableText text = [] {
        using T = Table<Row>;
        TableText out{T::name, T::primary_key, T::order, T::since, {}};
        if (out.order.empty()) out.order = T::primary_key.empty() ? "rowid" : T::primary_key;
        for_each_column<Row>([&](auto index) {
            constexpr const auto& column = column_of<Row, index>;
            out.columns.push_back({column.name, detail::definition_sql(column), column.since, column.fallback,
                                   column.is_computed});
        });
        return out;
    }();
    return text;
}

/// Binds a row's values to consecutive parameters from `first`. Texts must outlive the next step.
template <typename Row>
void bind_row(Statement& to, int first, const Row& row) {
    for_each_column<Row>([&](auto index) {
        constexpr const auto& column = column_of<Row, index>;
        if constexpr (column.is_computed) {
            to.bind_copy(first++, column.compute(row));
        } else {
            const auto& value = row.*column.field;
            using Field = std::remove_cvref_t<decltype(value)>;
            if constexpr (std::is_enum_v<Field>)
                to.bind(first++, TextOrNull{to_text(value)});
            else if constexpr (column.is_blob)
                to.bind(first++, Blob{value});
            else if constexpr (std::is_same_v<Field, int> && column.null_if_none)
                to.bind(first++, value < 0 ? std::nullopt : std::optional(value));
            else if constexpr (column.is_key || column.null_if_none)
                to.bind(first++, IdOrNull{value});
            else if constexpr (std::is_same_v<Field, std::uint64_t>)
                to.bind(first++, static_cast<std::int64_t>(value));
            else
                to.bind(first++, value);
        }
    });
}

/// Reads the current row of a statement made by select_sql. If a value does not fit its field, `problem`
/// describes it; the value is not truncated.
template <typename Row>
Row read_row(const Statement& from, std::string& problem) {
    Row row;
    int at = 0;
    for_each_field<Row>([&](auto index) {
        constexpr const auto& column = column_of<Row, index>;
        if (!detail::read_value(from, at, column, row.*column.field) && problem.empty())
            problem = detail::impossible_value(from, at, column.name);
        ++at;
    });
    return row;
}

/// Inserts rows of one table.
template <typename Row>
class Insert {
  public:
    explicit Insert(const Database& db, std::string_view verb = "INSERT")
        : statement_(db.prepare(insert_sql(table_text<Row>(), 1, verb))) {}
    explicit operator bool() const { return static_cast<bool>(statement_); }
    /// Returns SQLITE_DONE or the error code.
    int run(const Row& row) {
        bind_row(statement_, 1, row);
        const int code = statement_.step();
        statement_.reset();
        return code;
    }

  private:
    Statement statement_;
};

/// Inserts rows of one table with multi-row statements; single-row statements cost a third more. Holds rows,
/// by value (numbers) or by pointer, until `flush`.
template <typename Row, typename Held = const Row*>
class BatchInsert {
  public:
    static constexpr int rows_per_statement = 32;

    explicit BatchInsert(const Database& db)
        : one_(db.prepare(insert_sql(table_text<Row>()))),
          many_(db.prepare(insert_sql(table_text<Row>(), rows_per_statement))) {}
    explicit operator bool() const { return one_ && many_; }

    void add(Held row) { held_.push_back(std::move(row)); }
    void discard() { held_.clear(); }
    /// Inserts the held rows in order. Returns SQLITE_DONE or the error code. No row is held afterwards.
    int flush() {
        int code = SQLITE_DONE;
        std::size_t at = 0;
        while (at < held_.size() && code == SQLITE_DONE) {
            const bool full = held_.size() - at >= rows_per_statement;
            Statement& statement = full ? many_ : one_;
            const int count = full ? rows_per_statement : 1;
            for (int i = 0; i < count; ++i) bind_row(statement, 1 + i * column_count<Row>, row(held_[at++]));
            code = statement.step();
            statement.reset();
        }
        held_.clear();
        return code;
    }

  private:
    static const Row& row(const Held& held) {
        if constexpr (std::is_pointer_v<Held>)
            return *held;
        else
            return held;
    }

    Statement one_, many_;
    std::vector<Held> held_;
};

}  // namespace draftscope::storage
