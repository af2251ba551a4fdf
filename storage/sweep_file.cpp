#include "storage/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "storage/capture_file.h"
#include "storage/row_reader.h"
#include "storage/schema.h"

namespace draftscope {
namespace {

/// Opens a capture for writing, or creates an empty one.
Result<storage::Database> open_for_sweep(const std::string& path) {
    std::error_code error;
    const bool exists = std::filesystem::exists(path, error);
    if (exists) {
        DS_ASSIGN(const storage::Database known, storage::open_capture(path));
        if (!storage::has_table(known, "sweep"))
            return bad_input(
                "{}: schema version {} has no table sweep; migrate it with draftscope check --repair", path,
                known.integer("PRAGMA user_version").value_or(0));
    } else {
        DS_TRY(storage::prepare_new_capture(path, false));
    }
    std::string message;
    storage::Database db =
        storage::open_database(path, SQLITE_OPEN_READWRITE | (exists ? 0 : SQLITE_OPEN_CREATE), &message);
    if (!db) return failed("{}: can't be opened for writing: {}", path, message);
    if (!exists && (storage::create_schema(db) != SQLITE_OK || db.exec(storage::index_sql()) != SQLITE_OK))
        return storage::file_error(path, db, "creating the capture");
    return db;
}

Status insert_all(const storage::Database& db, const std::string& path, const std::vector<SweptRow>& rows) {
    storage::Insert<SweptRow> insert(db);
    if (!insert) return storage::file_error(path, db, "writing table sweep");
    for (const SweptRow& row : rows)
        if (insert.run(row) != SQLITE_DONE) return storage::file_error(path, db, "writing table sweep");
    return {};
}

/// Returns the key in table meta that describes a sweep, as an SQL literal.
std::string about_key(const std::string& source) {
    return storage::sql_quoted("sweep " + source, '\'');
}

}  // namespace

Result<std::vector<SweptSource>> read_all_swept(const std::string& path) {
    std::vector<SweptSource> sweeps;
    DS_ASSIGN(const storage::Database db, storage::open_capture(path));
    if (!storage::has_table(db, "sweep")) return sweeps;
    storage::Cursor<SweptRow> cursor(db);
    while (cursor.has()) {
        SweptRow row = cursor.take();
        auto sweep = std::ranges::find(sweeps, row.source, &SweptSource::source);
        if (sweep == sweeps.end()) sweep = sweeps.insert(sweep, SweptSource{row.source, {}, {}});
        sweep->rows.push_back(std::move(row));
    }
    if (!cursor.problem().empty()) return bad_input("{}: {}", path, cursor.problem());
    if (cursor.code() != SQLITE_OK) return storage::file_error(path, db, "reading table sweep");
    for (SweptSource& sweep : sweeps)
        sweep.about = db.text("SELECT value FROM meta WHERE key = " + about_key(sweep.source)).value_or("");
    return sweeps;
}

Status write_swept(const std::string& path, const std::string& source, std::vector<SweptRow> rows,
                   const std::string& about) {
    DS_ASSIGN(const storage::Database db, open_for_sweep(path));
    if (db.exec("BEGIN IMMEDIATE; DELETE FROM sweep WHERE source = " + storage::sql_quoted(source, '\'')) !=
        SQLITE_OK)
        return storage::file_error(path, db, "writing table sweep");
    RowId id = db.integer("SELECT ifnull(max(id), 0) FROM sweep").value_or(0);
    for (SweptRow& row : rows) row.id = ++id;
    Status inserted = insert_all(db, path, rows);
    if (inserted.ok() && db.exec(fmt::format("INSERT OR REPLACE INTO meta VALUES ({}, {})", about_key(source),
                                             storage::sql_quoted(about, '\''))) != SQLITE_OK)
        inserted = storage::file_error(path, db, "writing table meta");
    if (!inserted.ok()) {
        db.exec("ROLLBACK");
        return inserted;
    }
    if (db.exec("COMMIT") != SQLITE_OK) return storage::file_error(path, db, "writing table sweep");
    return {};
}

}  // namespace draftscope
