#include "app/gui/shell/settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/gui/shell/layout.h"
#include "base/fields.h"
#include "base/log.h"
#include "base/user_folders.h"

namespace draftscope {

static std::string_view to_text(ThemeId theme) {
    return theme == ThemeId::light ? "light" : "dark";
}

static std::string read_text(std::string_view text, ThemeId& theme) {
    theme = text == "light" ? ThemeId::light : ThemeId::dark;
    return text == to_text(theme) ? "" : "dark or light";
}

namespace {

using nlohmann::json;

constexpr std::size_t max_recent_files = 10;
constexpr double any_count = 1e9;

/// The settings that the Session panel edits, except the capture file.
constexpr auto session_fields = join(
    DS_FIELDS(RunConfig, model, drafter, head, shadow, tree, prompt, prompts_file, verify, precision, raw,
              ignore_eos),
    field("template", &RunConfig::template_switches),
    between(0, any_count, DS_FIELDS(RunConfig, limit, context, top_k, baseline, calibration_rounds)),
    between(1, any_count, DS_FIELDS(RunConfig, max_new)), between(0, 2, DS_FIELDS(RunConfig, temperature)),
    between(0.05, 1, DS_FIELDS(RunConfig, top_p)), at_least(0, DS_FIELDS(RunConfig, seed)),
    between(0, 256, DS_FIELDS(RunConfig, threads)), between(1, 64, DS_FIELDS(RunConfig, batch)));

json write_session(const std::optional<RunConfig>& session) {
    return session ? write_fields(session_fields, *session) : json();
}

constexpr auto settings_fields =
    join(DS_FIELDS(Settings, theme, layout, guide_seen, folder, recent_files),
         between(min_user_scale, max_user_scale, field("scale", &Settings::user_scale)),
         as(std::identity(), DS_FIELDS(Settings, open_panels)),
         omitted_if_none(as(write_session, DS_FIELDS(Settings, session))));

/// Reads the members that hold others.
void read_nested(const JsonFile& file, Settings& settings, std::vector<std::string>& problems) {
    if (const json* panels = file.find("open_panels"); panels != nullptr) {
        const bool switches =
            panels->is_object() &&
            std::all_of(panels->begin(), panels->end(), [](const json& p) { return p.is_boolean(); });
        if (!switches) problems.push_back(file.field_error("open_panels", "a list of switches").message);
        if (switches) settings.open_panels = panels->get<decltype(settings.open_panels)>();
    }
    const auto session = file.object("session");
    if (!session.ok()) problems.push_back(session.error().message);
    if (!session.ok() || !*session) return;
    const auto found = read_valid_fields(session_fields, **session, settings.session.emplace());
    problems.insert(problems.end(), found.begin(), found.end());
}

}  // namespace

void add_recent_file(Settings& settings, const std::string& path) {
    auto& files = settings.recent_files;
    files.erase(std::remove(files.begin(), files.end(), path), files.end());
    files.insert(files.begin(), path);
    if (files.size() > max_recent_files) files.resize(max_recent_files);
}

std::string to_json(const Settings& settings) {
    return write_fields(settings_fields, settings).dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Settings parse_settings(std::string_view text, std::vector<std::string>& problems, const std::string& path) {
    Settings settings;
    const auto file = JsonFile::parse(std::string(text), path);
    if (!file) {
        problems = {path + (json::accept(text) ? ": not a JSON object" : ": not JSON")};
        return settings;
    }
    const std::string layout = settings.layout;
    problems = read_valid_fields(settings_fields, *file, settings);
    if (!is_layout(settings.layout)) {
        problems.push_back(file->field_error("layout", "a layout").message);
        settings.layout = layout;
    }
    if (settings.recent_files.size() > max_recent_files) settings.recent_files.resize(max_recent_files);
    read_nested(*file, settings, problems);
    return settings;
}

Settings load_settings(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return {};
    std::stringstream text;
    text << file.rdbuf();
    std::vector<std::string> problems;
    Settings settings = parse_settings(text.str(), problems, path);
    for (const std::string& problem : problems) log_warning("{}; ignored", problem);
    return settings;
}

Status save_settings(const Settings& settings, const std::string& path) {
    const std::string unfinished = path + ".new";
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << to_json(settings);
    file.close();
    std::error_code error;
    if (file) std::filesystem::rename(unfinished, path, error);
    if (file && !error) return {};
    return failed("{}: cannot be written{}; the settings are not saved", path,
                  error ? ": " + error.message() : "");
}

std::string config_folder() {
    namespace fs = std::filesystem;
    fs::path base;
    if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != 0)
        base = config;
    else if (const fs::path home = home_folder(); !home.empty())
        base = home / ".config";
    else
        return "";
    std::error_code error;
    fs::create_directories(base / "draftscope", error);
    return error ? "" : (base / "draftscope").string();
}

}  // namespace draftscope
