#pragma once

#include <sqlite3.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "base/units.h"

/// Thin owning wrappers around SQLite's C handles, for this folder only. One connection per thread.
namespace draftscope::storage {

/// An id that is stored as NULL if it is 0. TextOrNull is stored as NULL if it is empty.
struct IdOrNull {
    RowId id = 0;
};
struct TextOrNull {
    std::string_view text;
};
struct Blob {
    std::string_view bytes;
};

/// A prepared statement.
class Statement {
  public:
    Statement() = default;
    explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
    sqlite3_stmt* get() const { return statement_.get(); }
    explicit operator bool() const { return statement_ != nullptr; }

    /// Returns SQLITE_ROW, SQLITE_DONE or an error code.
    int step() { return sqlite3_step(get()); }
    void reset() { sqlite3_reset(get()); }
    /// Binds all arguments in order, steps once and resets. A successful write returns SQLITE_DONE.
    template <typename... Args>
    int run(const Args&... args) {
        int i = 1;
        (bind(i++, args), ...);
        const int code = step();
        reset();
        return code;
    }

    void bind(int i, std::int64_t v) { sqlite3_bind_int64(get(), i, v); }
    void bind(int i, int v) { sqlite3_bind_int64(get(), i, v); }
    void bind(int i, bool v) { sqlite3_bind_int64(get(), i, v ? 1 : 0); }
    void bind(int i, double v) { sqlite3_bind_double(get(), i, v); }  // NaN becomes NULL
    void bind(int i, float v) { sqlite3_bind_double(get(), i, v); }
    void bind(int i, std::nullptr_t) { sqlite3_bind_null(get(), i); }
    void bind(int i, IdOrNull v) { v.id == 0 ? bind(i, nullptr) : bind(i, v.id); }
    void bind(int i, TextOrNull v) { v.text.empty() ? bind(i, nullptr) : bind(i, v.text); }
    void bind(int i, std::string_view v) {
        // A null pointer would bind NULL, so an empty view binds a literal.
        sqlite3_bind_text(get(), i, v.empty() ? "" : v.data(), static_cast<int>(v.size()), SQLITE_STATIC);
    }
    void bind(int i, const std::string& v) { bind(i, std::string_view(v)); }
    void bind(int i, Blob v) {
        sqlite3_bind_blob(get(), i, v.bytes.empty() ? "" : v.bytes.data(), static_cast<int>(v.bytes.size()),
                          SQLITE_STATIC);
    }
    /// Binds a temporary value.
    template <typename T>
    void bind_copy(int i, const T& v) {
        if constexpr (std::is_same_v<T, std::string>)
            sqlite3_bind_text(get(), i, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT);
        else
            bind(i, v);
    }
    template <typename T>
    void bind(int i, const std::optional<T>& v) {
        if (v)
            bind(i, *v);
        else
            bind(i, nullptr);
    }

    bool is_null(int column) const { return sqlite3_column_type(get(), column) == SQLITE_NULL; }
    std::int64_t integer(int column) const { return sqlite3_column_int64(get(), column); }
    double real(int column) const { return sqlite3_column_double(get(), column); }
    std::string_view text(int column) const {
        const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(get(), column));
        if (data == nullptr) return {};
        return {data, static_cast<std::size_t>(sqlite3_column_bytes(get(), column))};
    }
    std::string_view blob(int column) const {
        const auto* data = static_cast<const char*>(sqlite3_column_blob(get(), column));
        if (data == nullptr) return {};
        return {data, static_cast<std::size_t>(sqlite3_column_bytes(get(), column))};
    }

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
    };
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// A connection.
class Database {
  public:
    Database() = default;
    explicit Database(sqlite3* handle) : handle_(handle) {}
    sqlite3* get() const { return handle_.get(); }
    explicit operator bool() const { return handle_ != nullptr; }
    /// All statements must be finalised before.
    void close() { handle_.reset(); }

    /// Runs a script. Returns SQLITE_OK or the error code; message() describes the error.
    int exec(const char* sql) const { return sqlite3_exec(get(), sql, nullptr, nullptr, nullptr); }
    int exec(const std::string& sql) const { return exec(sql.c_str()); }
    /// Returns an empty statement on failure.
    Statement prepare(std::string_view sql) const;
    /// Returns the first column of the first row; nullopt on failure or without a row.
    std::optional<std::int64_t> integer(std::string_view sql) const;
    std::optional<std::string> text(std::string_view sql) const;
    std::string message() const { return sqlite3_errmsg(get()); }

  private:
    struct Close {
        void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
    };
    std::unique_ptr<sqlite3, Close> handle_;
};

/// Opens with SQLITE_OPEN_* flags and a busy timeout. On failure, `message` gets the reason.
/// `vfs`: SQLite's layer of file access; null = the default.
Database open_database(const std::string& path, int flags, std::string* message, const char* vfs = nullptr);
/// A layer without locks, for file systems and media that have none.
inline constexpr const char* vfs_without_locks = "unix-none";
/// Quotes `text` as an SQL string or identifier.
std::string sql_quoted(std::string_view text, char quote);

/// Joins SQLite's multi-line damage reports into one line, for messages and findings.
std::string one_line(std::string text);

/// Whether open_capture runs a structural check on small files. `check` runs a thorough one instead.
enum class OpenMode { checked, unchecked };
/// Opens an existing capture read-only and checks its identity. Returns bad_input for a file that is not
/// SQLite, belongs to another application, has a newer schema version or is damaged.
Result<Database> open_capture(const std::string& path, OpenMode how = OpenMode::checked);
/// As open_capture, for exclusive writing. Fails while any other connection has the file open.
Result<Database> open_capture_for_repair(const std::string& path);
/// Returns the connection's last error as one line. Damage is bad_input, a lock is failed.
Error file_error(const std::string& path, const Database& db, std::string_view action);
/// Calls `use` with each row of a query. It may return a Status, whose error ends the query. Errors of the
/// file are file_error() with `action`.
template <typename Use>
Status for_each_row(const std::string& path, const Database& db, std::string_view action,
                    std::string_view sql, Use use) {
    Statement row = db.prepare(sql);
    int code = row ? SQLITE_ROW : SQLITE_ERROR;
    while (code == SQLITE_ROW && (code = row.step()) == SQLITE_ROW)
        if constexpr (std::is_void_v<decltype(use(row))>)
            use(row);
        else
            DS_TRY(use(row));
    return code == SQLITE_DONE ? Status() : file_error(path, db, action);
}
/// Copies the whole database to a new file. An error names it as `name`.
Status copy_database(const Database& db, const std::string& to, const std::string& name);

}  // namespace draftscope::storage
