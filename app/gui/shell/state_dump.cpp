#include "app/gui/shell/state_dump.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "app/gui/models/activity.h"
#include "app/gui/shell/app.h"

namespace draftscope {
namespace {

constexpr std::string_view states[] = {"idle", "loading", "running", "held", "stopping"};

/// Replaces tabs and line ends, which separate fields and lines.
std::string escape_field(std::string text) {
    std::replace(text.begin(), text.end(), '\t', ' ');
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

void add(std::string& out, std::string_view name, std::string value) {
    out += fmt::format("{}\t{}\n", name, escape_field(std::move(value)));
}

std::string box_fields(const ImVec4& box) {
    return fmt::format("{:.0f}\t{:.0f}\t{:.0f}\t{:.0f}", box.x, box.y, box.z, box.w);
}

void add_windows(std::string& out) {
    for (const ImGuiWindow* window : ImGui::GetCurrentContext()->Windows) {
        if (!window->Active || window->Hidden) continue;
        const char* kind = (window->Flags & ImGuiWindowFlags_Tooltip) != 0 ? "tooltip"
                           : (window->Flags & ImGuiWindowFlags_Modal) != 0 ? "modal"
                           : (window->Flags & ImGuiWindowFlags_Popup) != 0 ? "popup"
                                                                           : "window";
        const ImRect box = window->Rect();
        out += fmt::format("window\t{}\t{}\t{}\n", escape_field(plain_window_name(window->Name)), kind,
                           box_fields(ImVec4(box.Min.x, box.Min.y, box.Max.x, box.Max.y)));
    }
}

void add_items(std::string& out, ImGuiID active) {
    for (const ShownItem& item : shown_items()) {
        if (item.label.empty() || !item.visible) continue;
        std::string marks;
        for (const auto& [set, mark] : {std::pair{item.checked, " checked"},
                                        {item.opened, " opened"},
                                        {item.disabled, " disabled"},
                                        {item.id == active, " active"}})
            if (set) marks += mark;
        out += fmt::format("item\t{}\t{}\t{}\t{}\n", escape_field(item.window), escape_field(item.label),
                           box_fields(item.box), marks);
    }
}

}  // namespace

std::vector<ShownItem>& shown_items() {
    static std::vector<ShownItem> items;
    return items;
}

std::string plain_window_name(const char* name) {
    std::string out;
    std::string_view rest = name;
    while (!rest.empty()) {
        const std::size_t slash = std::min(rest.find('/'), rest.size());
        std::string_view part = rest.substr(0, slash);
        rest.remove_prefix(std::min(slash + 1, rest.size()));
        if (const std::size_t id = part.find("###"); id != std::string_view::npos) part.remove_prefix(id + 3);
        // A child window's name ends in "_" and eight hexadecimal digits.
        if (!out.empty() && part.size() > 9 && part[part.size() - 9] == '_') part.remove_suffix(9);
        if (!out.empty()) out.push_back('/');
        out.append(part);
    }
    return out;
}

StateDump::StateDump() {
    if (const char* path = std::getenv("DRAFTSCOPE_GUI_STATE"); path != nullptr) path_ = path;
    if (!path_.empty()) ImGui::GetCurrentContext()->TestEngineHookItems = true;
}

void StateDump::before_frame() {
    shown_items().clear();
}

void StateDump::after_frame(App& app) {
    if (path_.empty()) return;
    const ImGuiContext& g = *ImGui::GetCurrentContext();
    const JobStatus& status = app.status();
    const UiState& ui = app.ui();
    std::string out;
    add(out, "frame", std::to_string(++frames_));
    add(out, "state", std::string(states[static_cast<std::size_t>(status.state)]));
    add(out, "ready", app.ready() ? "1" : "0");
    add(out, "activity", status.activity);
    add(out, "hold_reason", status.hold_reason);
    add(out, "held",
        status.state == JobState::held ? hold_text(status.hold_point, status.hold_reason, app.snapshot())
                                       : "");
    add(out, "error", status.error);
    add(out, "source", app.snapshot().source);
    add(out, "runs", std::to_string(app.snapshot().runs.size()));
    add(out, "rounds", std::to_string(app.snapshot().rounds.size()));
    const RunRow* run = app.snapshot().run(ui.run_id);
    add(out, "run", std::to_string(ui.run_id));
    add(out, "run_tree", run == nullptr ? "" : run->tree);
    add(out, "round", ui.round ? std::to_string(*ui.round) : "");
    add(out, "in_flight", in_flight_selected(app.snapshot(), ui) ? "1" : "0");
    add(out, "follow", ui.follow ? "1" : "0");
    add(out, "range", ui.range ? fmt::format("{} {}", ui.range->start_ns, ui.range->end_ns) : "");
    add(out, "command", to_command_line(app.config(), find_traits(status.drafters, app.config().drafter)));
    add(out, "theme", app.settings().theme == ThemeId::light ? "light" : "dark");
    add(out, "layout", app.settings().layout);
    add(out, "scale", fmt::format("{:.2f}", app.settings().user_scale));
    add(out, "what_ifs", std::to_string(status.what_ifs.size()));
    add(out, "unsaved", std::to_string(app.unsaved_rounds()));
    add(out, "notice", app.notice());
    add(out, "focus", g.NavWindow == nullptr ? "" : plain_window_name(g.NavWindow->Name));
    const bool typing =
        g.ActiveId != 0 && g.InputTextState.ID == g.ActiveId && !g.InputTextState.TextA.empty();
    add(out, "typed", typing ? g.InputTextState.TextA.Data : "");
    add_windows(out);
    add_items(out, g.ActiveId);
    const std::string unfinished = path_ + ".new";
    std::ofstream(unfinished, std::ios::binary) << out;
    std::rename(unfinished.c_str(), path_.c_str());
}

}  // namespace draftscope
