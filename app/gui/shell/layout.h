#pragma once

#include <imgui.h>

#include <array>
#include <string>
#include <string_view>

namespace draftscope {

struct Panel;
struct UiState;

/// Names of the layouts that the View menu and --layout offer.
inline constexpr std::array<std::string_view, 3> layout_names = {"explain", "profile", "compare"};
bool is_layout(std::string_view name);

/// Splits the dock space and puts each panel at its place; opens the panels that the layout shows. Where
/// there is little room, neighbouring places become tabs of one. Between frames, or before the windows of a
/// frame are submitted.
void build_layout(ImGuiID dockspace, ImVec2 size, std::string_view name, UiState& ui);

/// In the frame in which the layout was built, after its windows: the first tab of each place is shown.
void select_first_tabs(std::string_view layout, ImVec2 size);

/// Before the dock space is submitted: all parts grow and shrink with it, where Dear ImGui would let the
/// centre pay alone.
void scale_layout(ImGuiID dockspace, ImVec2 size);

/// Whether the panels are still where the layout put them, in a window so large that it would put them
/// elsewhere now.
bool needs_other_arrangement(std::string_view layout, ImVec2 size);

/// Gives the next window's contents at least the room that the panel needs; returns the flags with which it
/// scrolls where the window is smaller.
ImGuiWindowFlags keep_least_size(const Panel& panel, const std::string& window, float em);

/// "Title###id": the layout file knows the window by its id.
std::string window_name(const Panel& panel);

}  // namespace draftscope
