#include <algorithm>
#include <array>

#include "app/gui/panels/panel.h"

namespace draftscope {

// One line per panel.
void draw_session(PanelContext& context);
void draw_text(PanelContext& context);
void draw_draft_tree(PanelContext& context);
void draw_plane(PanelContext& context);
void draw_timeline(PanelContext& context);
void draw_phases(PanelContext& context);
void draw_coverage(PanelContext& context);
void draw_compare(PanelContext& context);
void draw_rounds(PanelContext& context);
void draw_kernels(PanelContext& context);
void draw_log(PanelContext& context);

std::span<const Panel> panels() {
    static constexpr std::array table = {
        Panel{"session", "Session", DockPlace::left_top, 0, true, draw_session, 13, 8},
        Panel{"text", "Text", DockPlace::left_bottom, 0, true, draw_text, 12, 8},
        Panel{"draft_tree", "Draft tree", DockPlace::centre, 0, true, draw_draft_tree, 18, 10},
        Panel{"plane", "Acceptance-cost plane", DockPlace::right_top, 0, true, draw_plane, 15, 19},
        Panel{"timeline", "Timeline", DockPlace::bottom_left, 0, true, draw_timeline, 18, 11},
        Panel{"phases", "Phases", DockPlace::bottom_middle, 0, true, draw_phases, 19, 13},
        Panel{"coverage", "Coverage", DockPlace::bottom_right, 0, true, draw_coverage, 16, 18},
        Panel{"kernels", "Kernels", DockPlace::bottom_right, 1, true, draw_kernels, 19, 8},
        Panel{"compare", "Compare", DockPlace::centre, 1, true, draw_compare, 18, 12},
        Panel{"rounds", "Rounds", DockPlace::strip, 0, true, draw_rounds, 22, 5.5f},
        Panel{"log", "Log", DockPlace::left_bottom, 1, true, draw_log, 12, 6},
    };
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
    ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
    ImGui::TextUnformatted(text.data(), end);
    ImGui::PopStyleColor();
    ImGui::PopTextWrapPos();
}

}  // namespace draftscope
