#include "storage/table_sql.h"

#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope::storage {

namespace {

// No structs have rows of these tables: their contents are the same in every file.
constexpr std::string_view meta_sql = R"sql(CREATE TABLE meta(
  key TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)sql";
constexpr std::string_view phase_sql = R"sql(CREATE TABLE phase(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  parent_id INTEGER REFERENCES phase(id),
  colour TEXT NOT NULL,
  sort INTEGER NOT NULL
) STRICT;
)sql";

}  // namespace

std::string create_sql(const TableText& table, int version) {
    std::string out = fmt::format("CREATE TABLE {}(", table.name);
    const char* separator = "\n  ";
    for (const TableText::Column& column : table.columns) {
        if (column.since > version) continue;
        out += separator + column.definition;
        separator = ",\n  ";
    }
    if (table.primary_key.empty()) return out + "\n) STRICT;\n";
    return out + fmt::format(",\n  PRIMARY KEY ({})\n) STRICT, WITHOUT ROWID;\n", table.primary_key);
}

std::string insert_sql(const TableText& table, int rows, std::string_view verb) {
    std::string row = "(?";
    for (std::size_t i = 1; i < table.columns.size(); ++i) row += ", ?";
    row += ")";
    std::string out = fmt::format("{} INTO {} VALUES {}", verb, table.name, row);
    for (int i = 1; i < rows; ++i) out += ", " + row;
    return out;
}

std::string select_sql(const Database& db, const TableText& table, std::string_view condition,
                       std::string_view order) {
    std::string out;
    for (const TableText::Column& column : table.columns) {
        if (column.is_computed) continue;
        const bool missing = column.since > 0 && !has_column(db, table.name, column.name);
        out += out.empty() ? "SELECT " : ", ";
        out += !missing ? column.name : column.fallback.empty() ? "NULL" : column.fallback;
    }
    out += fmt::format(" FROM {}", table.name);
    if (!condition.empty()) out += fmt::format(" WHERE {}", condition);
    return out + fmt::format(" ORDER BY {}", order.empty() ? table.order : order);
}

std::string after_condition(const TableText& table, RowId after) {
    if (after <= 0) return {};
    const std::string_view id = table.primary_key.empty()  // a table with a primary key has no rowids
                                    ? "rowid"
                                    : table.primary_key.substr(0, table.primary_key.find(','));
    return fmt::format("{} > {}", id, after);
}

const std::vector<const TableText*>& all_tables() {
    static const std::vector<const TableText*> tables = [] {
        std::vector<const TableText*> out;
        for_each_table([&]<typename Row>() { out.push_back(&table_text<Row>()); });
        return out;
    }();
    return tables;
}

std::string tables_sql() {
    std::string out(meta_sql);
    for (const TableText* table : all_tables()) {
        if (table == &table_text<SpanRow>()) out += phase_sql;  // before the first table that refers to it
        out += create_sql(*table, capture_schema_version);
    }
    return out;
}

std::string added_sql(int version) {
    std::string out;
    for (const TableText* table : all_tables()) {
        if (table->since == version) out += create_sql(*table, version);
        for (const TableText::Column& column : table->columns)
            if (column.since == version)
                out += fmt::format("ALTER TABLE {} ADD COLUMN {};\n", table->name, column.definition);
    }
    return out;
}

std::string detail::impossible_value(const Statement& from, int at, std::string_view column) {
    return fmt::format("column {} holds {}", column, one_line(std::string(from.text(at).substr(0, 40))));
}

}  // namespace draftscope::storage
