#include "storage/schema.h"

#include "base/clock.h"
#include "base/phase_names.h"
#include "storage/capture_file.h"
#include "storage/table_sql.h"

namespace draftscope::storage {

const std::vector<TableName>& table_names() {
    static const std::vector<TableName> names = [] {
        std::vector<TableName> out = {{"meta"}, {"phase"}};
        for (const TableText* table : all_tables()) out.push_back({table->name, table->since});
        out.push_back({dropped_table, 3});
        return out;
    }();
    return names;
}

std::string index_sql() {
    std::string out;
    for (const Index& index : indexes)
        out += fmt::format("CREATE INDEX IF NOT EXISTS {} ON {};", index.name, index.on);
    return out;
}

// Captures of older versions have only the rule's name.
const char* const losslessness_sql =
    "CASE iif(json_valid(config_json), json_extract(config_json, '$.losslessness'), NULL) "
    "WHEN 'exact' THEN 'exact' WHEN 'distribution' THEN 'in distribution' WHEN 'lossy' THEN 'LOSSY' WHEN "
    "'unknown' THEN "
    "'unknown' ELSE "
    "CASE WHEN acceptance <> 'real' THEN 'LOSSY' WHEN temperature <= 0 OR verify = 'match' THEN 'exact' "
    "WHEN verify = 'pq' THEN 'in distribution' ELSE 'LOSSY' END END";

bool has_table(const Database& db, std::string_view name) {
    return db.integer("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = " +
                      sql_quoted(name, '\'')) == 1;
}

bool has_column(const Database& db, std::string_view table, std::string_view column) {
    return db.integer(fmt::format("SELECT count(*) FROM pragma_table_info({}) WHERE name = {}",
                                  sql_quoted(table, '\''), sql_quoted(column, '\''))) == 1;
}

int create_schema(const Database& db) {
    const std::string identity = fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};",
                                             capture_application_id, capture_schema_version);
    if (const int code = db.exec(identity); code != SQLITE_OK) return code;
    if (const int code = db.exec(tables_sql()); code != SQLITE_OK) return code;
    if (const int code = db.exec(view_sql); code != SQLITE_OK) return code;
    Statement phase = db.prepare("INSERT INTO phase VALUES (?, ?, ?, ?, ?)");
    for (const PhaseRow& row : phase_rows) {
        const std::string colour = fmt::format("#{:06X}", row.rgb);
        const int code = phase.run(row.id, row.name, IdOrNull{row.parent_id}, colour, row.id);
        if (code != SQLITE_DONE) return code;
    }
    Statement meta = db.prepare("INSERT INTO meta VALUES (?, ?)");
    const std::string created = utc_text(utc_ns()).text;
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"created_utc", created},
                                     {"schema_version", std::to_string(capture_schema_version)},
                                     {"sqlite_version", sqlite3_libversion()},
                                     {"writer", "draftscope"}})
        if (const int code = meta.run(key, value); code != SQLITE_DONE) return code;
    return SQLITE_OK;
}

}  // namespace draftscope::storage
