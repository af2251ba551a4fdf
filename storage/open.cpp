#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope::storage {

namespace {

/// For larger files the structural check would delay the first paint; `draftscope check` runs it.
constexpr std::uintmax_t quick_check_bytes = 8u << 20;

/// A WAL-mode file in a read-only folder can only be opened as immutable. This is safe if no process has it
/// open, so no -wal file exists.
std::string immutable_uri(const std::string& path) {
    std::string out = "file:";
    for (const char c : path) {
        if (c == '%' || c == '?' || c == '#')
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        else
            out += c;
    }
    return out + "?immutable=1";
}

/// Files are untrusted: their schema must not run code or write, and SQLite checks pages as it reads them.
void harden(const Database& db) {
    sqlite3_db_config(db.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    db.exec("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON");
}

/// If a program is killed while it finishes its file, it leaves a journal that only a writer can roll back.
Status roll_back(const std::string& path) {
    std::string message;
    const Database db = open_database(path, SQLITE_OPEN_READWRITE, &message);
    if (db) harden(db);
    if (db && db.integer("PRAGMA schema_version")) return {};
    return bad_input(
        "{}: the program was killed while it finished the file, and recovery needs write permission ({}); "
        "copy the file and {}-journal to a writable folder",
        path, db ? one_line(db.message()) : message, path);
}

Status identify(const std::string& path, const Database& db) {
    const std::optional<std::int64_t> id = db.integer("PRAGMA application_id");
    if (!id) {
        if ((sqlite3_errcode(db.get()) & 0xff) == SQLITE_NOTADB)
            return bad_input(
                "{}: not a Draftscope capture (not an SQLite file); give a file written by run --save", path);
        return file_error(path, db, "reading the header");
    }
    if (*id != capture_application_id)
        return bad_input(
            "{}: not a Draftscope capture (an SQLite file with application id 0x{:08X} instead of 0x{:08X}); "
            "give a file written by run --save",
            path, static_cast<std::uint32_t>(*id), static_cast<std::uint32_t>(capture_application_id));
    const std::int64_t version = db.integer("PRAGMA user_version").value_or(0);
    if (version > capture_schema_version)
        return bad_input(
            "{}: written by a newer Draftscope: the file has schema version {}, this program reads up "
            "to {}; update the program",
            path, version, capture_schema_version);
    if (version < 1)
        return bad_input("{}: schema version {}, but versions start at 1; the file is damaged or incomplete",
                         path, version);
    Statement find = db.prepare("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?");
    for (const auto& [table, since] : table_names()) {
        if (since > 1) continue;
        if (!find) return file_error(path, db, "reading the schema");
        find.bind(1, table);
        if (find.step() != SQLITE_ROW) return file_error(path, db, "reading the schema");
        if (find.integer(0) != 1) return bad_input("{}: damaged capture: table {} is missing", path, table);
        find.reset();
    }
    return {};
}

Status check_structure(const std::string& path, const Database& db) {
    std::error_code error;
    if (std::filesystem::file_size(path, error) > quick_check_bytes || error) return {};
    const std::optional<std::string> verdict = db.text("PRAGMA quick_check(1)");
    if (!verdict) return file_error(path, db, "checking the file");
    if (*verdict != "ok")
        return bad_input("{}: damaged capture: {}; save the readable part with sqlite3's .recover", path,
                         one_line(*verdict));
    return {};
}

}  // namespace

Error file_error(const std::string& path, const Database& db, std::string_view action) {
    const std::string message = one_line(db.message());
    const int code = sqlite3_errcode(db.get()) & 0xff;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return bad_input("{}: damaged capture: {} while {}; save the readable part with sqlite3's .recover",
                         path, message, action);
    if (code == SQLITE_BUSY)
        return failed("{}: locked by another program while {}; try again later", path, action);
    return bad_input("{}: {} while {}", path, message, action);
}

Result<Database> open_capture(const std::string& path, OpenMode how) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return bad_input("{}: no such file", path);
    if (!std::filesystem::is_regular_file(path, error)) return bad_input("{}: not a regular file", path);
    Database db;
    const auto open = [&](const std::string& name, int flags = 0, const char* vfs = nullptr) -> Status {
        std::string message;
        db = open_database(name, SQLITE_OPEN_READONLY | flags, &message, vfs);
        if (!db) return bad_input("{}: can't be opened: {}", path, message);
        harden(db);
        return {};
    };
    DS_TRY(open(path));
    const bool readable = db.integer("PRAGMA schema_version").has_value();
    const int problem = readable ? SQLITE_OK : sqlite3_errcode(db.get()) & 0xff;
    const auto log_bytes = std::filesystem::file_size(path + "-wal", error);
    if (problem == SQLITE_CANTOPEN && (error || log_bytes == 0)) {
        DS_TRY(open(immutable_uri(path), SQLITE_OPEN_URI));
    } else if (problem == SQLITE_CANTOPEN || problem == SQLITE_IOERR ||
               (problem == SQLITE_BUSY && !has_locks(path))) {
        // Without a place for shared memory, an exclusive connection keeps the index of the log to itself. No
        // other process can write in such a place, or the file system has no locks to wait for.
        DS_TRY(open(path, 0, vfs_without_locks));
        db.exec("PRAGMA locking_mode = EXCLUSIVE");
        sqlite3_db_config(db.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    }
    if (!readable && sqlite3_extended_errcode(db.get()) == SQLITE_READONLY_ROLLBACK) {
        DS_TRY(roll_back(path));
        DS_TRY(open(path));
    }
    DS_TRY(identify(path, db));
    if (how == OpenMode::checked) DS_TRY(check_structure(path, db));
    return db;
}

Result<Database> open_capture_for_repair(const std::string& path) {
    { DS_ASSIGN(const Database look, open_capture(path, OpenMode::unchecked)); }
    const std::filesystem::path file(path);
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    if (access(path.c_str(), W_OK) != 0 || access(folder.c_str(), W_OK | X_OK) != 0)
        return bad_input(
            "{}: the file or its folder is read-only; copy it (and {}-wal, if it exists) to a writable "
            "folder, then repair the copy",
            path, path);
    std::string message;
    Database db = open_database(path, SQLITE_OPEN_READWRITE, &message);
    if (!db) return bad_input("{}: can't be opened for writing: {}", path, message);
    harden(db);
    if (sqlite3_db_readonly(db.get(), "main") == 1)
        return bad_input("{}: the file is read-only; copy it to a writable folder", path);
    // This must precede the first access, so that the lock is on the file itself. A live run holds a shared
    // lock even between transactions, so it is never marked as recovered.
    sqlite3_busy_timeout(db.get(), 200);
    db.exec("PRAGMA locking_mode = EXCLUSIVE");
    if (db.exec("BEGIN EXCLUSIVE; COMMIT") != SQLITE_OK)
        return failed("{}: in use by another program ({}); close it there, then repair", path, db.message());
    return db;
}

}  // namespace draftscope::storage
