#include "app/gui/shell/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/gui/shell/layout.h"
#include "base/log.h"
#include "base/user_folders.h"

namespace draftscope {
namespace {

using nlohmann::json;

constexpr std::size_t max_recent_files = 10;
constexpr double any_count = 1e9;

/// Reads members of one JSON object and reports each unusable member once.
class Reader {
  public:
    Reader(const json& object, std::string name, std::vector<std::string>& problems)
        : object_(object), name_(std::move(name)), problems_(problems) {
        if (!object_.is_object())
            problems_.push_back(name_.empty() ? "not a JSON object" : name_ + ": not an object");
    }
    ~Reader() {
        if (!object_.is_object()) return;
        for (const auto& [key, value] : object_.items())
            if (!known_.contains(key)) problems_.push_back(path(key) + ": unknown");
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    const json* find(const char* key) {
        known_.insert(key);
        if (!object_.is_object()) return nullptr;
        const auto found = object_.find(key);
        return found == object_.end() ? nullptr : &*found;
    }
    void read(const char* key, std::string& target) {
        const json* value = find(key);
        if (value == nullptr) return;
        if (value->is_string())
            target = value->get<std::string>();
        else
            problems_.push_back(path(key) + ": not text");
    }
    void read(const char* key, bool& target) {
        const json* value = find(key);
        if (value == nullptr) return;
        if (value->is_boolean())
            target = value->get<bool>();
        else
            problems_.push_back(path(key) + ": neither true nor false");
    }
    void read(const char* key, std::vector<std::string>& target) {
        const json* value = find(key);
        if (value == nullptr) return;
        const auto is_text = [](const json& one) { return one.is_string(); };
        if (value->is_array() && std::all_of(value->begin(), value->end(), is_text))
            target = value->get<std::vector<std::string>>();
        else
            problems_.push_back(path(key) + ": not a list of texts");
    }
    template <typename T>
    void read(const char* key, T& target, double min_value, double max_value) {
        const json* value = find(key);
        if (value == nullptr) return;
        const bool fits = value->is_number() && value->get<double>() >= min_value &&
                          value->get<double>() <= max_value &&
                          (std::is_floating_point_v<T> || value->is_number_integer());
        if (fits)
            target = value->get<T>();
        else
            problems_.push_back(
                fmt::format("{}: not a number from {} to {}", path(key), min_value, max_value));
    }
    std::string path(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }

  private:
    const json& object_;
    std::string name_;
    std::vector<std::string>& problems_;
    std::set<std::string> known_;
};

struct Writer {
    json object = json::object();
    template <typename T, typename... Range>
    void read(const char* key, const T& value, Range...) {
        object[key] = value;
    }
};

/// Visits the settings that the Session panel edits, except the capture file.
template <typename Config, typename Access>
void for_session_fields(Config& config, Access& access) {
    access.read("model", config.model);
    access.read("drafter", config.drafter);
    access.read("head", config.head);
    access.read("shadow", config.shadow);
    access.read("tree", config.tree);
    access.read("prompt", config.prompt);
    access.read("prompts_file", config.prompts_file);
    access.read("limit", config.limit, 0, any_count);
    access.read("max_new", config.max_new, 1, any_count);
    access.read("context", config.context, 0, any_count);
    access.read("temperature", config.temperature, 0, 2);
    access.read("verify", config.verify);
    access.read("top_p", config.top_p, 0.05, 1);
    access.read("top_k", config.top_k, 0, any_count);
    access.read("seed", config.seed, 0, 18446744073709551615.0);
    access.read("precision", config.precision);
    access.read("threads", config.threads, 0, 256);
    access.read("batch", config.batch, 1, 64);
    access.read("baseline", config.baseline, 0, any_count);
    access.read("calibration_rounds", config.calibration_rounds, 0, any_count);
    access.read("raw", config.raw);
    access.read("template", config.template_switches);
    access.read("ignore_eos", config.ignore_eos);
}

void read_names(Reader& reader, Settings& settings, std::vector<std::string>& problems) {
    std::string theme = "dark", layout = settings.layout;
    reader.read("theme", theme);
    reader.read("layout", layout);
    if (theme == "dark" || theme == "light")
        settings.theme = theme == "light" ? ThemeId::light : ThemeId::dark;
    else
        problems.push_back("theme: neither dark nor light");
    if (is_layout(layout))
        settings.layout = layout;
    else
        problems.push_back("layout: not a layout");
}

void read_lists(Reader& reader, Settings& settings, std::vector<std::string>& problems) {
    if (const json* files = reader.find("recent_files"); files != nullptr) {
        const bool texts = files->is_array() && std::all_of(files->begin(), files->end(),
                                                            [](const json& f) { return f.is_string(); });
        if (!texts) problems.push_back("recent_files: not a list of texts");
        for (const json& file : texts ? *files : json::array())
            if (settings.recent_files.size() < max_recent_files) settings.recent_files.push_back(file);
    }
    if (const json* panels = reader.find("open_panels"); panels != nullptr) {
        const bool switches =
            panels->is_object() &&
            std::all_of(panels->begin(), panels->end(), [](const json& p) { return p.is_boolean(); });
        if (!switches) problems.push_back("open_panels: not a list of switches");
        if (switches) settings.open_panels = panels->get<decltype(settings.open_panels)>();
    }
}

}  // namespace

void add_recent_file(Settings& settings, const std::string& path) {
    auto& files = settings.recent_files;
    files.erase(std::remove(files.begin(), files.end(), path), files.end());
    files.insert(files.begin(), path);
    if (files.size() > max_recent_files) files.resize(max_recent_files);
}

std::string to_json(const Settings& settings) {
    json object = {{"theme", settings.theme == ThemeId::light ? "light" : "dark"},
                   {"scale", settings.user_scale},
                   {"layout", settings.layout},
                   {"guide_seen", settings.guide_seen},
                   {"folder", settings.folder},
                   {"recent_files", settings.recent_files},
                   {"open_panels", settings.open_panels}};
    if (settings.session) {
        Writer writer;
        for_session_fields(*settings.session, writer);
        object["session"] = writer.object;
    }
    return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Settings parse_settings(std::string_view text, std::vector<std::string>& problems) {
    Settings settings;
    const json object = json::parse(text, nullptr, false);
    if (object.is_discarded()) {
        problems.push_back("not JSON");
        return settings;
    }
    Reader reader(object, "", problems);
    read_names(reader, settings, problems);
    reader.read("scale", settings.user_scale, min_user_scale, max_user_scale);
    reader.read("guide_seen", settings.guide_seen);
    reader.read("folder", settings.folder);
    read_lists(reader, settings, problems);
    if (const json* session = reader.find("session"); session != nullptr) {
        Reader fields(*session, "session", problems);
        for_session_fields(settings.session.emplace(), fields);
    }
    return settings;
}

Settings load_settings(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return {};
    std::stringstream text;
    text << file.rdbuf();
    std::vector<std::string> problems;
    Settings settings = parse_settings(text.str(), problems);
    for (const std::string& problem : problems) log_warning("{}: {}; ignored", path, problem);
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
