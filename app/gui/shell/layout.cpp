#include "app/gui/shell/layout.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "app/gui/panels/panel.h"

namespace draftscope {
namespace {

// In em.
constexpr float min_strip = 10.5f;                ///< height of the Rounds strip
constexpr float compact_strip = 8.5f;             ///< height of the strip in a small window
constexpr float min_width = 72, min_height = 36;  ///< minimum size for separate places

using Places = std::map<DockPlace, ImGuiID>;

/// Sizes of a layout's places, as fractions of the width or height.
struct Fractions {
    std::string_view layout;
    float strip, left, right;
    float upper;  ///< of the centre column's height above the strip
    float upper_left, upper_right;
    float timeline;  ///< of the centre column's width
};
constexpr Fractions layout_fractions[] = {
    {"explain", 0.185f, 0.2f, 0.27f, 0.54f, 0.585f, 0.54f, 0.46f},
    {"profile", 0.17f, 0.19f, 0.25f, 0.36f, 0.55f, 0.5f, 0.56f},
    {"compare", 0.17f, 0.19f, 0.30f, 0.56f, 0.55f, 0.5f, 0.5f},
    {"choose", 0.17f, 0.19f, 0.31f, 0.60f, 0.55f, 0.5f, 0.6f},
};

/// A panel that a layout moves from its place in the registry.
struct Move {
    std::string_view layout, panel;
    DockPlace place;
};
constexpr Move moves[] = {
    {"compare", "compare", DockPlace::centre},     {"compare", "plane", DockPlace::bottom_middle},
    {"compare", "phases", DockPlace::bottom_left}, {"compare", "draft_tree", DockPlace::right_top},
    {"choose", "advisor", DockPlace::right_top},   {"choose", "draft_tree", DockPlace::bottom_right},
    {"choose", "matrix", DockPlace::bottom_left},
};

/// Returns whether a layout opens a panel. Those for comparing and choosing have nothing to show in the
/// others.
bool opens(std::string_view layout, const Panel& panel) {
    static constexpr std::string_view choosing[] = {"compare", "sweep", "advisor", "matrix"};
    const bool chooses = layout == "compare" || layout == "choose";
    return panel.open && (chooses || std::ranges::find(choosing, panel.id) == std::end(choosing));
}

bool is_compact(ImVec2 size) {
    const float em = ImGui::GetFontSize();
    return size.x < min_width * em || size.y < min_height * em;
}

/// Splits into left column, centre, bottom and right column. The places of each part are tabs of one node.
Places split_compact(ImGuiID root, float strip) {
    Places places;
    ImGuiID rest = root;
    places[DockPlace::strip] = ImGui::DockBuilderSplitNode(rest, ImGuiDir_Down, strip, nullptr, &rest);
    constexpr float left = 0.25f, right = 0.31f, bottom = 0.47f;
    places[DockPlace::left_top] = places[DockPlace::left_bottom] =
        ImGui::DockBuilderSplitNode(rest, ImGuiDir_Left, left, nullptr, &rest);
    places[DockPlace::right_top] = places[DockPlace::bottom_right] =
        ImGui::DockBuilderSplitNode(rest, ImGuiDir_Right, right / (1 - left), nullptr, &rest);
    places[DockPlace::bottom_left] = places[DockPlace::bottom_middle] =
        ImGui::DockBuilderSplitNode(rest, ImGuiDir_Down, bottom, nullptr, &rest);
    places[DockPlace::centre] = rest;
    return places;
}

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

DockPlace panel_place(const Panel& panel, std::string_view layout) {
    for (const Move& move : moves)
        if (move.layout == layout && move.panel == panel.id) return move.place;
    return panel.place;
}

/// Returns the place whose node holds the panel. A compact arrangement merges several places.
DockPlace panel_node(const Panel& panel, std::string_view layout, bool compact) {
    const DockPlace place = panel_place(panel, layout);
    if (!compact) return place;
    if (place == DockPlace::left_bottom) return DockPlace::left_top;
    if (place == DockPlace::bottom_right) return DockPlace::right_top;
    if (place == DockPlace::bottom_middle) return DockPlace::bottom_left;
    return place;
}

/// Returns the order of a panel's tab: a layout puts the panels that it moves, and its subject, in front.
int tab_order(const Panel& panel, std::string_view layout) {
    const bool subject = layout == "choose" && std::string_view(panel.id) == "sweep";
    return subject || panel_place(panel, layout) != panel.place ? -1 : panel.order;
}

/// Orders tabs by place, then by the order of the tabs.
bool is_before(const Panel& a, const Panel& b, std::string_view layout) {
    const DockPlace at = panel_place(a, layout), other = panel_place(b, layout);
    return at == other ? tab_order(a, layout) < tab_order(b, layout) : at < other;
}

/// Returns true if the panels share nodes exactly as in this arrangement.
bool is_arranged(std::string_view layout, bool compact) {
    std::map<DockPlace, ImGuiID> node_at;
    std::map<ImGuiID, DockPlace> place_at;
    for (const Panel& panel : panels()) {
        const ImGuiWindow* window = ImGui::FindWindowByName(window_name(panel).c_str());
        if (window == nullptr || !window->WasActive) continue;
        if (window->DockId == 0) return false;
        const DockPlace place = panel_node(panel, layout, compact);
        if (node_at.emplace(place, window->DockId).first->second != window->DockId) return false;
        if (place_at.emplace(window->DockId, place).first->second != place) return false;
    }
    return !node_at.empty();
}

void scale_node(ImGuiDockNode* node, ImVec2 factor) {
    if (node == nullptr) return;
    node->SizeRef.x *= factor.x;
    node->SizeRef.y *= factor.y;
    for (ImGuiDockNode* child : node->ChildNodes) scale_node(child, factor);
}

}  // namespace

bool is_layout(std::string_view name) {
    return std::ranges::find(layout_names, name) != layout_names.end();
}

std::string window_name(const Panel& panel) {
    return std::string(panel.title) + "###" + panel.id;
}

void build_layout(ImGuiID dockspace, ImVec2 size, std::string_view name, UiState& ui) {
    ImGui::DockBuilderRemoveNode(dockspace);
    ImGui::DockBuilderAddNode(dockspace, ImGuiDockNodeFlags_DockSpace);
    ImGui::DockBuilderSetNodeSize(dockspace, size);
    const bool compact = is_compact(size);
    const float em = ImGui::GetFontSize();
    Fractions fractions = *std::ranges::find(layout_fractions, name, &Fractions::layout);
    fractions.strip = std::clamp(min_strip * em / size.y, fractions.strip, 0.3f);
    const Places places = compact ? split_compact(dockspace, std::min(compact_strip * em / size.y, 0.3f))
                                  : split(dockspace, fractions);
    std::vector<const Panel*> ordered;
    for (const Panel& panel : panels()) ordered.push_back(&panel);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [&](const Panel* a, const Panel* b) { return is_before(*a, *b, name); });
    for (const Panel* panel : ordered) {
        const std::string window = window_name(*panel);
        ImGui::DockBuilderDockWindow(window.c_str(), places.at(panel_place(*panel, name)));
        ui.open.insert_or_assign(panel->id, opens(name, *panel));
    }
    ImGui::DockBuilderFinish(dockspace);
}

void select_first_tabs(std::string_view layout, ImVec2 size) {
    const bool compact = is_compact(size);
    std::map<DockPlace, const Panel*> front;
    for (const Panel& panel : panels()) {
        const Panel*& first = front[panel_node(panel, layout, compact)];
        if (opens(layout, panel) && (first == nullptr || is_before(panel, *first, layout))) first = &panel;
    }
    for (const auto& [place, panel] : front) {
        const ImGuiWindow* window =
            panel == nullptr ? nullptr : ImGui::FindWindowByName(window_name(*panel).c_str());
        if (window != nullptr && window->DockNode != nullptr && window->DockNode->TabBar != nullptr)
            window->DockNode->TabBar->NextSelectedTabId = window->TabId;
    }
}

void scale_layout(ImGuiID dockspace, ImVec2 size) {
    ImGuiDockNode* root = ImGui::DockBuilderGetNode(dockspace);
    if (root == nullptr || root->Size.x < 1 || root->Size.y < 1) return;
    // The dock space has whole pixels; fractions do not count as a change.
    const ImVec2 whole(ImTrunc(size.x), ImTrunc(size.y));
    if (std::abs(whole.x - root->Size.x) < 1 && std::abs(whole.y - root->Size.y) < 1) return;
    const ImVec2 factor(whole.x / root->Size.x, whole.y / root->Size.y);
    for (ImGuiDockNode* child : root->ChildNodes) scale_node(child, factor);
}

bool needs_other_arrangement(std::string_view layout, ImVec2 size) {
    const bool compact = is_compact(size);
    return is_arranged(layout, !compact) && !is_arranged(layout, compact);
}

ImGuiWindowFlags enforce_min_size(const Panel& panel, const std::string& window, float em) {
    const ImGuiWindow* shown = ImGui::FindWindowByName(window.c_str());
    if (shown == nullptr) return ImGuiWindowFlags_NoScrollbar;
    const ImVec2 room(
        shown->Size.x - 2 * shown->WindowPadding.x - shown->DecoOuterSizeX1 - shown->DecoOuterSizeX2,
        shown->Size.y - 2 * shown->WindowPadding.y - shown->DecoOuterSizeY1 - shown->DecoOuterSizeY2);
    const ImVec2 min_size(panel.min_width * em, panel.min_height * em);
    const ImVec2 content(room.x < min_size.x ? min_size.x : 0, room.y < min_size.y ? min_size.y : 0);
    if (content.x == 0 && content.y == 0) return ImGuiWindowFlags_NoScrollbar;
    ImGui::SetNextWindowContentSize(content);
    return content.x > 0 ? ImGuiWindowFlags_HorizontalScrollbar : ImGuiWindowFlags_None;
}

}  // namespace draftscope
