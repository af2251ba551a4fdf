#include <algorithm>
#include <filesystem>
#include <system_error>

#include "capture/run_setting.h"
#include "storage/capture_file.h"
#include "storage/row_reader.h"
#include "storage/schema.h"
#include "storage/step_phase.h"

namespace draftscope::storage {

namespace {

/// Views belong to the program, not to the data, so they are dropped and created again.
bool recreate_views(const Database& db) {
    std::string script;
    {
        Statement views = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'view'");
        while (views && views.step() == SQLITE_ROW)
            script += "DROP VIEW " + sql_quoted(views.text(0), '"') + ";";
    }
    script +=
        fmt::format("UPDATE meta SET value = '{}' WHERE key = 'schema_version';", capture_schema_version);
    return db.exec(script + view_sql) == SQLITE_OK;
}

/// Fills in the settings of every run from its columns.
int fill_settings(const Database& db) {
    std::vector<RunRow> runs;
    {
        Cursor<RunRow> cursor(db);
        while (cursor.has()) runs.push_back(cursor.take());
        if (!cursor.problem().empty()) return SQLITE_CORRUPT;
        if (cursor.code() != SQLITE_OK) return cursor.code();
    }
    Statement update =
        db.prepare("UPDATE run SET plain_setting = ?2, setting = ?3, baseline = ?4 WHERE id = ?1");
    if (!update) return SQLITE_ERROR;
    for (const RunRow& run : runs) {
        const int code = update.run(run.id, plain_setting(run), head_setting(run), is_baseline(run));
        if (code != SQLITE_DONE) return code;
    }
    return SQLITE_OK;
}

/// Version 8 has no hardware counters. Those of an older file stay in it.
int drop_empty_counters(const Database& db) {
    if (!has_table(db, dropped_table)) return SQLITE_OK;
    const std::optional<std::int64_t> rows =
        db.integer(fmt::format("SELECT count(*) FROM {}", dropped_table));
    if (!rows) return SQLITE_ERROR;
    return *rows > 0 ? SQLITE_OK : db.exec(fmt::format("DROP TABLE {}", dropped_table));
}

/// Columns that version 9 lets be NULL: imported runs may lack them.
struct MaybeUnknown {
    const char *table, *definition;
};
constexpr MaybeUnknown maybe_unknown[] = {
    {"run", "temperature REAL"},         {"run", "batch INTEGER"},
    {"run", "threads INTEGER"},          {"prompt", "prompt_tokens INTEGER"},
    {"prompt", "prefill_ns INTEGER"},    {"step", "end_ns INTEGER"},
    {"round", "ordinal INTEGER"},        {"round", "end_ns INTEGER"},
    {"round", "context_length INTEGER"}, {"round", "tree_nodes INTEGER"},
    {"round", "tree_depth INTEGER"},     {"round", "drafted INTEGER"},
    {"node", "target_covered INTEGER"},  {"token", "covered INTEGER"},
};

/// Takes NOT NULL from the stored definitions, as SQLite documents it, instead of copying the tables.
int allow_unknown(const Database& db) {
    std::string script = "PRAGMA writable_schema = ON;";
    for (const MaybeUnknown& column : maybe_unknown)
        script += fmt::format(
            "UPDATE sqlite_schema SET sql = replace(sql, '{0} NOT NULL', '{0}') WHERE name = '{1}';",
            column.definition, column.table);
    script +=
        "UPDATE sqlite_schema SET sql = replace(sql, '''shadow'')', '''shadow'', ''untimed'')') WHERE name = "
        "'step'; PRAGMA writable_schema = RESET;";
    sqlite3_db_config(db.get(), SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
    const int code = db.exec(script);
    sqlite3_db_config(db.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    return code;
}

}  // namespace

const std::vector<Migration>& migrations() {
    static const std::vector<Migration> steps = {
        {1, added_sql(2), fill_step_phase},
        {2, added_sql(3)},
        {3, added_sql(4), fill_settings},
        {4, added_sql(5)},
        {5, added_sql(6)},
        {6, added_sql(7)},
        {7, "", drop_empty_counters},
        {8, added_sql(9), allow_unknown},
        {9, added_sql(10)},
    };
    return steps;
}

Status migrate(const Database& db, const std::string& path, const std::vector<Migration>& steps,
               int target_version) {
    const int found = static_cast<int>(db.integer("PRAGMA user_version").value_or(0));
    if (found == target_version) return {};
    if (found > target_version)
        return bad_input(
            "{}: schema version {} is newer than {}, the newest that this program supports; update the "
            "program",
            path, found, target_version);
    const std::string backup = fmt::format("{}.v{}.bak", path, found);
    std::error_code error;
    if (std::filesystem::exists(backup, error))
        return bad_input(
            "{}: schema version {} must be migrated to {}, but the backup {} exists already; move it", path,
            found, target_version, backup);
    if (db.exec("VACUUM INTO " + sql_quoted(backup, '\'')) != SQLITE_OK)
        return failed("{}: the backup {} can't be written: {}; nothing was changed", path, backup,
                      db.message());
    if (db.exec("BEGIN IMMEDIATE") != SQLITE_OK) return file_error(path, db, "starting the migration");
    const auto failed_at = [&](int version, const std::string& why) {
        db.exec("ROLLBACK");
        return failed("{}: migration from schema version {} to {} failed: {}; the file is unchanged", path,
                      version, version + 1, why);
    };
    std::vector<const Migration*> done;
    for (int version = found; version < target_version; ++version) {
        const auto step =
            std::find_if(steps.begin(), steps.end(), [&](const Migration& s) { return s.from == version; });
        if (step == steps.end()) return failed_at(version, "no such step");
        if (db.exec(step->sql) != SQLITE_OK) return failed_at(version, db.message());
        done.push_back(&*step);
    }
    for (const Migration* step : done)
        if (step->then != nullptr && step->then(db) != SQLITE_OK) return failed_at(step->from, db.message());
    if (target_version == capture_schema_version && !recreate_views(db)) {
        const std::string why = db.message();
        db.exec("ROLLBACK");
        return failed("{}: migration to schema version {} failed: {}; the file is unchanged", path,
                      target_version, why);
    }
    // The transaction includes the version, so a file is never partly migrated.
    if (db.exec(fmt::format("PRAGMA user_version = {}; COMMIT", target_version)) != SQLITE_OK) {
        const std::string why = db.message();
        db.exec("ROLLBACK");
        return failed("{}: migration to schema version {} failed: {}; the file is unchanged", path,
                      target_version, why);
    }
    return {};
}

}  // namespace draftscope::storage
