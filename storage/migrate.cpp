#include <filesystem>
#include <system_error>

#include "storage/schema.h"

namespace draftscope::storage {

const std::vector<Migration>& migrations() {
    static const std::vector<Migration> steps;
    return steps;
}

Status migrate(const Database& db, const std::string& path, const std::vector<Migration>& steps,
               int target_version) {
    const int found = static_cast<int>(db.integer("PRAGMA user_version").value_or(0));
    if (found == target_version) return {};
    if (found > target_version)
        return bad_input(
            "{}: schema version {} is newer than {}, which is what this program knows; update the program",
            path, found, target_version);
    const std::string backup = fmt::format("{}.v{}.bak", path, found);
    std::error_code error;
    if (std::filesystem::exists(backup, error))
        return bad_input(
            "{}: has schema version {} and must be brought to {}, but the backup {} is in the way; move it",
            path, found, target_version, backup);
    if (db.exec("VACUUM INTO " + sql_quoted(backup, '\'')) != SQLITE_OK)
        return failed("{}: no backup could be written to {}: {}; nothing was changed", path, backup,
                      db.message());
    if (db.exec("BEGIN IMMEDIATE") != SQLITE_OK) return file_error(path, db, "starting the migration");
    for (int version = found; version < target_version; ++version) {
        const Migration* step = nullptr;
        for (const Migration& s : steps)
            if (s.from == version) step = &s;
        const bool done = step != nullptr && db.exec(step->sql) == SQLITE_OK;
        if (!done) {
            const std::string why = step == nullptr ? "no such step" : db.message();
            db.exec("ROLLBACK");
            return failed("{}: migration from schema version {} to {} failed: {}; the file is unchanged",
                          path, version, version + 1, why);
        }
    }
    // The version is part of the transaction: a file is never half migrated.
    if (db.exec(fmt::format("PRAGMA user_version = {}; COMMIT", target_version)) != SQLITE_OK) {
        const std::string why = db.message();
        db.exec("ROLLBACK");
        return failed("{}: migration to schema version {} failed: {}; the file is unchanged", path,
                      target_version, why);
    }
    return {};
}

}  // namespace draftscope::storage
