#include <algorithm>

#include "app/gui/panels/panel.h"

namespace draftscope {

// One line per panel, in the order of the View menu: id, title, place, order of its tab, open by default,
// least width and height in em. draw_ID() is defined in the panel's file.
#define DS_PANELS(PANEL)                                              \
    PANEL(session, "Session", left_top, 0, true, 13, 8)               \
    PANEL(text, "Text", left_bottom, 0, true, 12, 8)                  \
    PANEL(draft_tree, "Draft tree", centre, 0, true, 18, 10)          \
    PANEL(plane, "Acceptance-cost plane", right_top, 0, true, 15, 19) \
    PANEL(timeline, "Timeline", bottom_left, 0, true, 18, 11)         \
    PANEL(phases, "Phases", bottom_middle, 0, true, 19, 13)           \
    PANEL(latency, "Latency", bottom_middle, 1, true, 16, 13)         \
    PANEL(rejections, "Rejections", bottom_middle, 2, true, 18, 12)   \
    PANEL(coverage, "Coverage", bottom_right, 0, true, 16, 18)        \
    PANEL(kernels, "Kernels", bottom_right, 1, true, 19, 8)           \
    PANEL(compare, "Compare", centre, 1, true, 18, 12)                \
    PANEL(sweep, "Sweep", centre, 2, true, 24, 16)                    \
    PANEL(advisor, "Advisor", centre, 3, true, 22, 14)                \
    PANEL(matrix, "Matrix", centre, 4, true, 22, 10)                  \
    PANEL(rounds, "Rounds", strip, 0, true, 22, 5.5f)                 \
    PANEL(log, "Log", left_bottom, 1, true, 12, 6)

#define DS_DECLARE_PANEL(id, ...) void draw_##id(PanelContext& context);
DS_PANELS(DS_DECLARE_PANEL)
#undef DS_DECLARE_PANEL

std::span<const Panel> panels() {
#define DS_LIST_PANEL(id, title, place, order, open, width, height) \
    Panel{#id, title, DockPlace::place, order, open, draw_##id, width, height},
    static constexpr Panel table[] = {DS_PANELS(DS_LIST_PANEL)};
#undef DS_LIST_PANEL
    return table;
}

void draw_empty_text(const Style& style, std::string_view text) {
    // Centred in the visible part of the panel.
    const ImVec2 all = ImGui::GetContentRegionAvail(), padding = ImGui::GetStyle().WindowPadding;
    const ImVec2 room(std::min(all.x, ImGui::GetWindowWidth() - 2 * padding.x),
                      std::min(all.y, ImGui::GetWindowHeight() - ImGui::GetCursorPosY() - padding.y));
    const float width = std::max(std::min(room.x - 2 * style.em, 30 * style.em), 6 * style.em);
    const char* end = text.data() + text.size();
    const ImVec2 size = ImGui::CalcTextSize(text.data(), end, false, width);
    const ImVec2 start = ImGui::GetCursorPos();
    ImGui::SetCursorPos(ImVec2(start.x + std::max(0.0f, (room.x - size.x) / 2),
                               start.y + std::max(0.0f, (room.y - size.y) / 2)));
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width);
    ImGui::TextDisabled("%.*s", static_cast<int>(text.size()), text.data());
    ImGui::PopTextWrapPos();
}

}  // namespace draftscope
