#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "app/gui/shell/app.h"
#include "app/gui/shell/layout.h"

namespace draftscope {
namespace {

App& app_of(ImGuiSettingsHandler* handler) {
    return *static_cast<App*>(handler->UserData);
}

void* open_section(ImGuiContext*, ImGuiSettingsHandler* handler, const char*) {
    return handler->UserData;
}

void read_line(ImGuiContext*, ImGuiSettingsHandler* handler, void*, const char* line) {
    App& app = app_of(handler);
    const std::string_view text = line;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) return;
    const std::string_view key = text.substr(0, equals), value = text.substr(equals + 1);
    Settings& settings = app.settings();
    if (key == "theme") settings.theme = value == "light" ? ThemeId::light : ThemeId::dark;
    if (key == "scale")
        settings.user_scale = std::clamp(std::strtof(std::string(value).c_str(), nullptr), 0.5f, 3.0f);
    if (key == "layout" && is_layout(value)) settings.layout = value;
    if (key == "guide_seen") settings.guide_seen = value == "1";
    if (key.starts_with("open.")) app.ui().open.insert_or_assign(std::string(key.substr(5)), value == "1");
}

void write_all(ImGuiContext*, ImGuiSettingsHandler* handler, ImGuiTextBuffer* out) {
    App& app = app_of(handler);
    const Settings& settings = app.settings();
    out->appendf("[%s][Settings]\n", handler->TypeName);
    out->appendf("theme=%s\n", settings.theme == ThemeId::light ? "light" : "dark");
    out->appendf("scale=%.2f\n", static_cast<double>(settings.user_scale));
    out->appendf("layout=%s\n", settings.layout.c_str());
    out->appendf("guide_seen=%d\n", settings.guide_seen ? 1 : 0);
    for (const auto& [id, open] : app.ui().open) out->appendf("open.%s=%d\n", id.c_str(), open ? 1 : 0);
    out->append("\n");
}

}  // namespace

void App::register_settings() {
    ImGuiSettingsHandler handler;
    handler.TypeName = "Draftscope";
    handler.TypeHash = ImHashStr(handler.TypeName);
    handler.UserData = this;
    handler.ReadOpenFn = open_section;
    handler.ReadLineFn = read_line;
    handler.WriteAllFn = write_all;
    ImGui::AddSettingsHandler(&handler);
}

std::string layout_file() {
    namespace fs = std::filesystem;
    fs::path base;
    if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != 0)
        base = config;
    else if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
        base = fs::path(home) / ".config";
    else
        return "";
    std::error_code error;
    fs::create_directories(base / "draftscope", error);
    return error ? "" : (base / "draftscope" / "layout.ini").string();
}

}  // namespace draftscope
