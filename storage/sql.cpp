#include "storage/sql.h"

namespace draftscope::storage {

Statement Database::prepare(std::string_view sql) const {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v3(get(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement,
                       nullptr);
    return Statement(statement);
}

std::optional<std::int64_t> Database::integer(std::string_view sql) const {
    Statement statement = prepare(sql);
    if (!statement || statement.step() != SQLITE_ROW || statement.is_null(0)) return std::nullopt;
    return statement.integer(0);
}

std::optional<std::string> Database::text(std::string_view sql) const {
    Statement statement = prepare(sql);
    if (!statement || statement.step() != SQLITE_ROW || statement.is_null(0)) return std::nullopt;
    return std::string(statement.text(0));
}

Database open_database(const std::string& path, int flags, std::string* message, const char* vfs) {
    sqlite3* handle = nullptr;
    // A connection is used by one thread at a time. With the mutex, every column read would take two locks.
    const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, vfs);
    Database db(handle);  // SQLite returns a handle that must be closed even if opening fails
    if (code != SQLITE_OK) {
        *message = handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
        return Database();
    }
    sqlite3_busy_timeout(handle, 5000);
    sqlite3_extended_result_codes(handle, 1);
    return db;
}

Status copy_database(const Database& db, const std::string& to, const std::string& name) {
    if (db.exec("VACUUM INTO " + sql_quoted(to, '\'')) == SQLITE_OK) return {};
    return failed("{}: can't be written: {}; free space or choose another folder", name, db.message());
}

std::string sql_quoted(std::string_view text, char quote) {
    std::string out(1, quote);
    for (const char c : text) {
        if (c == quote) out += quote;
        out += c;
    }
    out += quote;
    return out;
}

std::string one_line(std::string text) {
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return text;
}

}  // namespace draftscope::storage
