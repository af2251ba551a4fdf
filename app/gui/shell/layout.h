#pragma once

#include <imgui.h>

#include <array>
#include <string>
#include <string_view>

namespace draftscope {

struct Panel;
struct UiState;

/// Names of the layouts of the View menu and of --layout.
inline constexpr std::array<std::string_view, 4> layout_names = {"explain", "profile", "compare", "choose"};
bool is_layout(std::string_view name);

/// Splits the dock space, docks each panel at its place and opens the layout's panels. If `size` is small,
/// neighbouring places are merged into tabs. Call between frames, or before a frame's windows are submitted.
void build_layout(ImGuiID dockspace, ImVec2 size, std::string_view name, UiState& ui);

/// Selects the first tab of each place. Call after the windows of the frame that built the layout.
void select_first_tabs(std::string_view layout, ImVec2 size);

/// Resizes all parts in proportion to the dock space; Dear ImGui would resize only the centre. Call before
/// the dock space is submitted.
void scale_layout(ImGuiID dockspace, ImVec2 size);

/// Returns true if the panels are where the layout put them, but the layout for this size is another one.
bool needs_other_arrangement(std::string_view layout, ImVec2 size);

/// Gives the next window's contents at least the panel's minimum size. Returns the flags for scrolling in a
/// smaller window.
ImGuiWindowFlags enforce_min_size(const Panel& panel, const std::string& window, float em);

/// Returns "Title###id". The layout file refers to the window by its id.
std::string window_name(const Panel& panel);

}  // namespace draftscope
