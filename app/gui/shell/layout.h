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

/// Splits the dock space and puts each panel at its place; opens the panels that the layout shows. Between
/// frames, or before the windows of a frame are submitted.
void build_layout(ImGuiID dockspace, ImVec2 size, std::string_view name, UiState& ui);

/// In the frame in which the layout was built, after its windows: the first tab of each place is shown.
void bring_first_tabs_to_front(std::string_view layout);

/// "Title###id": the layout file knows the window by its id.
std::string window_name(const Panel& panel);

}  // namespace draftscope
