#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

/// Returns whether a column can hold text of a user or a model. Exports without text leave such columns
/// empty.
bool is_private_column(std::string_view table, std::string_view column) {
    if (table == "prompt") return column == "text" || column == "output";
    if (table == "note") return column == "text";
    if (table == "vocab") return column == "text" || column == "bytes";  // would reveal the text of token ids
    if (table == "run") return column == "config_json";                  // may contain the prompt
    return false;
}

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// RFC 4180: quotes where needed and doubles quotes. Empty text is "" and NULL is nothing, so they differ.
void append_text(std::string& line, std::string_view text) {
    if (!text.empty() && text.find_first_of(",\"\r\n") == std::string_view::npos) {
        line += text;
        return;
    }
    line += storage::sql_quoted(text, '"');
}

void append_value(std::string& line, const storage::Statement& row, int column) {
    switch (sqlite3_column_type(row.get(), column)) {
        case SQLITE_NULL:
            break;
        case SQLITE_FLOAT:
            line += fmt::format("{}", row.real(column));  // shortest text that parses to the same number
            break;
        case SQLITE_BLOB:
            for (const char c : row.blob(column))
                line += fmt::format("{:02x}", static_cast<unsigned char>(c));
            break;
        case SQLITE_INTEGER:
            line += fmt::format("{}", row.integer(column));
            break;
        default:
            append_text(line, row.text(column));
    }
}

/// losslessness() of each run: `exact`, `in distribution` or `LOSSY`. Every exported table of tau and speed
/// includes it.
using Losslessness = std::map<std::int64_t, std::string>;

Result<Losslessness> losslessness_by_run(const std::string& path, const storage::Database& db) {
    Losslessness out;
    DS_TRY(storage::for_each_row(path, db, "reading run",
                                 fmt::format("SELECT id, {} FROM run", storage::losslessness_sql),
                                 [&](storage::Statement& run) { out[run.integer(0)] = run.text(1); }));
    return out;
}

/// The columns of one file: those of its table or view. Files with acceptance figures have one more.
struct Columns {
    int count = 0;
    int run = -1;  ///< column with the run id, for files with a losslessness column; -1 = none
    std::vector<bool> hidden;
    std::string header;
};

Columns list_columns(const storage::Statement& rows, std::string_view name, bool drop_text) {
    Columns out;
    out.count = sqlite3_column_count(rows.get());
    bool accepts = name == "run";
    for (int c = 0; c < out.count; ++c) {
        const std::string_view column = sqlite3_column_name(rows.get(), c);
        out.hidden.push_back(drop_text && is_private_column(name, column));
        if (c > 0) out.header += ',';
        append_text(out.header, column);
        if (column == (name == "run" ? "id" : "run_id")) out.run = c;
        accepts |=
            name.starts_with("v_") && (column == "tau" || column == "committed" || column == "covered");
    }
    if (!accepts) out.run = -1;
    if (out.run >= 0) out.header += ",losslessness";
    return out;
}

Status write_csv(const std::string& path, const storage::Database& db, std::string_view name,
                 const std::string& file_name, bool drop_text, const Losslessness& losslessness) {
    storage::Statement rows = db.prepare(fmt::format("SELECT * FROM {}", name));
    if (!rows) return storage::file_error(path, db, fmt::format("reading {}", name));
    const File file(std::fopen(file_name.c_str(), "wb"));
    if (!file) return failed("{}: can't be written; check that its folder exists and is writable", file_name);
    const Columns columns = list_columns(rows, name, drop_text);
    std::string line = columns.header;
    int code = SQLITE_ROW;
    bool written = true;
    do {
        line += "\r\n";
        written = written && std::fwrite(line.data(), 1, line.size(), file.get()) == line.size();
        line.clear();
        code = rows.step();
        for (int c = 0; code == SQLITE_ROW && c < columns.count; ++c) {
            if (c > 0) line += ',';
            if (!columns.hidden[c]) append_value(line, rows, c);
        }
        if (code != SQLITE_ROW || columns.run < 0) continue;
        line += ',';
        const auto found = losslessness.find(rows.integer(columns.run));
        if (found != losslessness.end()) append_text(line, found->second);
    } while (code == SQLITE_ROW && written);
    if (!written || std::fflush(file.get()) != 0)
        return failed("{}: writing failed; is the disk full?", file_name);
    if (code != SQLITE_DONE) return storage::file_error(path, db, fmt::format("reading {}", name));
    return {};
}

}  // namespace

Status export_csv(const std::string& path, const std::string& out, bool drop_text) {
    DS_ASSIGN(const storage::Database db, storage::open_capture(path));
    std::error_code error;
    if (std::filesystem::exists(out, error) && !std::filesystem::is_directory(out, error))
        return bad_input("{}: not a folder; give --out a folder for the CSV files", out);
    const bool created = std::filesystem::create_directory(out, error);
    if (!std::filesystem::is_directory(out, error))
        return bad_input("{}: the folder can't be created; create it or choose another one", out);
    const auto csv_path = [&](std::string_view name) {
        return (std::filesystem::path(out) / fmt::format("{}.csv", name)).string();
    };
    for (const auto& [table, since] : storage::table_names()) {
        if (std::filesystem::exists(csv_path(table), error))
            return bad_input("{}: the file exists; choose another folder", csv_path(table));
    }
    std::vector<std::string> files;
    const auto write_all = [&]() -> Status {
        if (db.exec("BEGIN") != SQLITE_OK) return storage::file_error(path, db, "starting to read");
        DS_ASSIGN(const Losslessness losslessness, losslessness_by_run(path, db));
        const auto write = [&](std::string_view name) {
            files.push_back(csv_path(name));
            return write_csv(path, db, name, files.back(), drop_text, losslessness);
        };
        // A file of an older version has older views.
        const auto exists = [&](std::string_view name) {
            return db.integer("SELECT count(*) FROM sqlite_schema WHERE name = " +
                              storage::sql_quoted(name, '\'')) == 1;
        };
        for (const auto& [table, since] : storage::table_names())
            if (since == 1 || exists(table)) DS_TRY(write(table));
        for (const std::string_view view : storage::view_names)
            if (exists(view)) DS_TRY(write(view));
        return {};
    };
    Status written = write_all();
    if (!written.ok()) {
        for (const std::string& file : files) std::filesystem::remove(file, error);
        if (created) std::filesystem::remove(out, error);  // removes only an empty folder
    }
    return written;
}

}  // namespace draftscope
