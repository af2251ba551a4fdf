#include <filesystem>
#include <system_error>

#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "storage/capture_file.h"
#include "storage/export/export.h"
#include "storage/schema.h"

namespace draftscope {

namespace storage {

bool is_private_column(std::string_view table, std::string_view column) {
    if (table == "prompt") return column == "text" || column == "output";
    if (table == "note") return column == "text";
    if (table == "vocab") return column == "text" || column == "bytes";  // would reveal the text of token ids
    if (table == "run") return column == "config_json";                  // may contain the prompt
    return false;
}

Status check_new_file(const std::string& out) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (out.empty()) return bad_input("no output file given; name one");
    const fs::file_status status = fs::status(out, error);
    if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
        return bad_input("{}: not a regular file; name a new file, or --out - for stdout", out);
    if (fs::exists(status)) return bad_input("{}: the file exists; choose another name", out);
    const fs::path folder = fs::path(out).has_parent_path() ? fs::path(out).parent_path() : fs::path(".");
    if (!fs::is_directory(folder, error))
        return bad_input("{}: the folder {} does not exist; create it or choose another one", out,
                         folder.string());
    return {};
}

std::string partial_name(const std::string& out) {
    return out + ".partial";
}

Status publish(const std::string& partial, const std::string& out) {
    std::error_code error;
    std::filesystem::rename(partial, out, error);
    if (error) return failed("{}: can't be renamed to {}: {}", partial, out, error.message());
    return {};
}

}  // namespace storage

namespace {

constexpr const char* drop_text_sql = R"sql(
UPDATE prompt SET text = '', output = '';
UPDATE vocab SET text = '', bytes = x'';
DELETE FROM note;
)sql";

/// Keeps the settings that distinguish runs and contain no text.
std::string drop_settings_sql() {
    std::string paths;
    std::vector<std::string_view> keys = setting_config_keys();
    keys.push_back(head_traits_key);
    for (const std::string_view key : keys)
        paths += (paths.empty() ? "" : ", ") + storage::sql_quoted(key, '\'');
    return fmt::format(
        "UPDATE run SET config_json = (SELECT json_group_object(key, json(config_json -> fullkey)) FROM "
        "json_each(config_json) WHERE key IN ({})) WHERE json_valid(config_json);"
        "UPDATE run SET config_json = '{{}}' WHERE NOT json_valid(config_json);",
        paths);
}

Status copy_into(const storage::Database& db, const std::string& partial, bool drop_text) {
    if (db.exec("VACUUM INTO " + storage::sql_quoted(partial, '\'')) != SQLITE_OK)
        return failed("{}: can't be written: {}; free space or choose another folder", partial, db.message());
    if (!drop_text) return {};
    std::string message;
    const storage::Database copy = storage::open_database(partial, SQLITE_OPEN_READWRITE, &message);
    if (!copy) return failed("{}: can't be opened: {}", partial, message);
    // The final in-place VACUUM removes cleared texts from free pages.
    const std::string script =
        "BEGIN IMMEDIATE;" + std::string(drop_text_sql) + drop_settings_sql() + "COMMIT; VACUUM;";
    if (copy.exec(script) != SQLITE_OK)
        return failed("{}: the text can't be removed: {}; nothing was exported", partial, copy.message());
    return {};
}

}  // namespace

Status export_sqlite(const std::string& path, const std::string& out, bool drop_text) {
    DS_ASSIGN(const storage::Database db, storage::open_capture(path));
    DS_TRY(storage::check_new_file(out));
    const std::string partial = storage::partial_name(out);
    std::error_code error;
    std::filesystem::remove(partial, error);
    Status copied = copy_into(db, partial, drop_text);
    if (!copied.ok()) {
        std::filesystem::remove(partial, error);
        return copied;
    }
    return storage::publish(partial, out);
}

}  // namespace draftscope
