#include "app/gui/shell/layout.h"

#include <imgui_internal.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "app/gui/panels/panel.h"

namespace draftscope {
namespace {

constexpr float least_strip = 10.5f;  ///< height of the Rounds strip, in text sizes

using Places = std::map<DockPlace, ImGuiID>;

struct Fractions {
    float strip, left, right;  ///< of the whole width or height
    float upper;               ///< of the height above the strip, centre column
    float upper_left, upper_right;
    float timeline;  ///< of the centre column's width
};

Places split(ImGuiID root, const Fractions& f) {
    Places places;
    ImGuiID rest = root;
    places[DockPlace::strip] = ImGui::DockBuilderSplitNode(rest, ImGuiDir_Down, f.strip, nullptr, &rest);
    ImGuiID left = ImGui::DockBuilderSplitNode(rest, ImGuiDir_Left, f.left, nullptr, &rest);
    ImGuiID right = ImGui::DockBuilderSplitNode(rest, ImGuiDir_Right, f.right / (1 - f.left), nullptr, &rest);
    places[DockPlace::left_bottom] =
        ImGui::DockBuilderSplitNode(left, ImGuiDir_Down, 1 - f.upper_left, nullptr, &left);
    places[DockPlace::left_top] = left;
    places[DockPlace::bottom_right] =
        ImGui::DockBuilderSplitNode(right, ImGuiDir_Down, 1 - f.upper_right, nullptr, &right);
    places[DockPlace::right_top] = right;
    ImGuiID bottom = ImGui::DockBuilderSplitNode(rest, ImGuiDir_Down, 1 - f.upper, nullptr, &rest);
    places[DockPlace::bottom_middle] =
        ImGui::DockBuilderSplitNode(bottom, ImGuiDir_Right, 1 - f.timeline, nullptr, &bottom);
    places[DockPlace::bottom_left] = bottom;
    places[DockPlace::centre] = rest;
    return places;
}

Fractions fractions_of(std::string_view name) {
    if (name == "profile")
        return {.strip = 0.17f,
                .left = 0.19f,
                .right = 0.25f,
                .upper = 0.36f,
                .upper_left = 0.55f,
                .upper_right = 0.5f,
                .timeline = 0.56f};
    if (name == "compare")
        return {.strip = 0.17f,
                .left = 0.19f,
                .right = 0.30f,
                .upper = 0.56f,
                .upper_left = 0.55f,
                .upper_right = 0.5f,
                .timeline = 0.5f};
    return {.strip = 0.185f,
            .left = 0.2f,
            .right = 0.27f,
            .upper = 0.54f,
            .upper_left = 0.585f,
            .upper_right = 0.54f,
            .timeline = 0.46f};
}

/// Layouts move a few panels; the rest stays where the registry puts it.
DockPlace place_of(const Panel& panel, std::string_view layout) {
    const std::string_view id = panel.id;
    if (layout == "compare" && id == "compare") return DockPlace::centre;
    if (layout == "compare" && id == "plane") return DockPlace::bottom_middle;
    if (layout == "compare" && id == "phases") return DockPlace::bottom_left;
    if (layout == "compare" && id == "draft_tree") return DockPlace::right_top;
    return panel.place;
}

}  // namespace

bool is_layout(std::string_view name) {
    return std::find(layout_names.begin(), layout_names.end(), name) != layout_names.end();
}

std::string window_name(const Panel& panel) {
    return std::string(panel.title) + "###" + panel.id;
}

void build_layout(ImGuiID dockspace, ImVec2 size, std::string_view name, UiState& ui) {
    ImGui::DockBuilderRemoveNode(dockspace);
    ImGui::DockBuilderAddNode(dockspace, ImGuiDockNodeFlags_DockSpace);
    ImGui::DockBuilderSetNodeSize(dockspace, size);
    Fractions fractions = fractions_of(name);
    fractions.strip = std::clamp(least_strip * ImGui::GetFontSize() / size.y, fractions.strip, 0.3f);
    const Places places = split(dockspace, fractions);
    std::vector<const Panel*> ordered;
    for (const Panel& panel : panels()) ordered.push_back(&panel);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const Panel* a, const Panel* b) { return a->order < b->order; });
    for (const Panel* panel : ordered) {
        const std::string window = window_name(*panel);
        const DockPlace place = place_of(*panel, name);
        ImGui::DockBuilderDockWindow(window.c_str(), places.at(place));
        ui.open.insert_or_assign(panel->id, panel->open);
    }
    ImGui::DockBuilderFinish(dockspace);
}

void bring_first_tabs_to_front(std::string_view layout) {
    std::map<DockPlace, const Panel*> front;
    for (const Panel& panel : panels()) {
        const Panel*& first = front[place_of(panel, layout)];
        if (panel.open && (first == nullptr || panel.order < first->order)) first = &panel;
    }
    for (const auto& [place, panel] : front) {
        const ImGuiWindow* window =
            panel == nullptr ? nullptr : ImGui::FindWindowByName(window_name(*panel).c_str());
        if (window != nullptr && window->DockNode != nullptr && window->DockNode->TabBar != nullptr)
            window->DockNode->TabBar->NextSelectedTabId = window->TabId;
    }
}

}  // namespace draftscope
