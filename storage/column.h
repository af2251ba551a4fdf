#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "capture/record.h"

/// The parts of a table's description. storage/tables.h describes the tables, and storage/table_sql.h derives
/// their SQL, binding and reading.
namespace draftscope::storage {

/// One column of a table. The type of its field gives the SQL type: whole numbers, ids and flags are INTEGER,
/// real numbers REAL, text and enums TEXT. A column is NOT NULL unless its field is optional, an enum with an
/// empty text, or a real number, because SQLite stores NaN as NULL.
template <typename Row, typename Field>
struct Column {
    std::string_view name;
    Field Row::*field = nullptr;
    Field (*compute)(const Row&) = nullptr;  ///< set for a column that is written but never read
    std::optional<Field> (*parse)(std::string_view) = nullptr;  ///< set for an enum
    std::string_view refers = {};                               ///< table whose id it holds
    bool is_key = false, is_computed = false, is_blob = false;
    bool null_if_none = false;  ///< an id of 0 and a negative number are stored as NULL
    std::int64_t low = std::numeric_limits<int>::min(), high = std::numeric_limits<int>::max();
    int since = 0;                   ///< schema version that added it; 0 = with its table
    std::string_view fallback = {};  ///< SQL literal: its value in older files; empty = NULL

    constexpr Column or_null() {
        null_if_none = true;
        return std::is_same_v<Field, int> ? range(0, 1 << 30) : *this;
    }
    /// Limits the values that a file may hold.
    constexpr Column range(std::int64_t lowest, std::int64_t highest) {
        low = lowest;
        high = highest;
        return *this;
    }
    /// Marks a column of a later schema version. It must follow all older columns of its table.
    constexpr Column added_in(int version, std::string_view default_sql = {}) {
        since = version;
        fallback = default_sql;
        return *this;
    }
};

template <typename Row, typename Field>
constexpr Column<Row, Field> col(std::string_view name, Field Row::*field) {
    return {.name = name, .field = field};
}
/// The id of the row. Rows are recorded and read in its order.
template <typename Row>
constexpr Column<Row, RowId> key(std::string_view name, RowId Row::*field) {
    return {.name = name, .field = field, .is_key = true};
}
/// The id of a row of another table. With or_null(), 0 is stored as NULL.
template <typename Row, typename Field>
constexpr Column<Row, Field> ref(std::string_view name, Field Row::*field, std::string_view table) {
    return {.name = name, .field = field, .refers = table};
}
/// An enum, stored as its text. Files with another text are damaged.
template <typename Row, typename Field>
constexpr Column<Row, Field> choice(std::string_view name, Field Row::*field,
                                    std::optional<Field> (*parse)(std::string_view)) {
    return {.name = name, .field = field, .parse = parse};
}
template <typename Row>
constexpr Column<Row, std::string> blob(std::string_view name, std::string Row::*field) {
    return {.name = name, .field = field, .is_blob = true};
}
/// A value that follows from the row, stored for SQL.
template <typename Row, typename Field>
constexpr Column<Row, Field> computed(std::string_view name, Field (*compute)(const Row&)) {
    return {.name = name, .compute = compute, .is_computed = true};
}

/// The description of the table that stores `Row`. It has a `name`, the `columns` in the order of the file,
/// and what differs from TableOf.
template <typename Row>
struct Table;
template <typename Row>
struct TableOf {
    using R = Row;
    static constexpr int since = 1;                      ///< schema version that added the table
    static constexpr std::string_view primary_key = {};  ///< columns; empty if it is made by key() or missing
    static constexpr std::string_view order = {};        ///< of reading; empty = by primary key or rowid
};

/// Column `index` of the table.
template <typename Row, std::size_t index>
inline constexpr const auto& column_of = std::get<index>(Table<Row>::columns);
template <typename Row>
inline constexpr int column_count = static_cast<int>(std::tuple_size_v<decltype(Table<Row>::columns)>);

/// Calls `visit` with the index of every column, in order, as a compile-time constant.
template <typename Row, typename Visit>
constexpr void for_each_column(Visit&& visit) {
    [&]<std::size_t... index>(std::index_sequence<index...>) {
        (visit(std::integral_constant<std::size_t, index>{}), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(column_count<Row>)>{});
}
/// As for_each_column, without computed columns.
template <typename Row, typename Visit>
constexpr void for_each_field(Visit&& visit) {
    for_each_column<Row>([&](auto index) {
        if constexpr (!column_of<Row, index>.is_computed) visit(index);
    });
}

/// Returns the counter that numbers the rows of a table; null if its ids are not renumbered.
constexpr RowId RowIds::*ids_of(std::string_view table) {
    if (table == "run") return &RowIds::run;
    if (table == "prompt") return &RowIds::prompt;
    if (table == "step") return &RowIds::step;
    if (table == "round") return &RowIds::round;
    if (table == "span") return &RowIds::span;
    if (table == "gpu_op") return &RowIds::gpu_op;
    return nullptr;
}

}  // namespace draftscope::storage
