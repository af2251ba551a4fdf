#include <filesystem>
#include <system_error>

#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope {

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
    std::error_code error;
    std::filesystem::remove(partial, error);
    DS_TRY(storage::copy_database(db, partial, partial));
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
    return storage::write_then_rename(
        out, [&](const std::string& partial) { return copy_into(db, partial, drop_text); });
}

}  // namespace draftscope
