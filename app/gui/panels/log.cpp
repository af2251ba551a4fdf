#include "base/log.h"

#include <imgui.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {
namespace {

constexpr std::size_t max_lines = 5000;

struct LogState {
    std::size_t next = 0;
    std::deque<LogLine> lines;
    TimeNs start = 0;
    int min_level = 1;
    bool at_end = true;
    std::vector<const LogLine*> shown;
    std::vector<float> bottoms;  ///< bottoms of the shown lines, wrapped at `width`
    float width = 0;
};

constexpr const char* level_names[] = {"debug", "info", "warning", "error"};

ImU32 level_colour(const Style& style, LogLevel level) {
    if (level == LogLevel::error) return to_im(style.colours.bad);
    if (level == LogLevel::warning) return to_im(style.colours.warn);
    return to_im(style.colours.text_dim);
}

/// Left edges of the columns behind the time. Narrow panels show the level only by colour.
struct LogColumns {
    float level = 0, text = 0;
};

LogColumns lay_out_columns(float room) {
    const float character = ImGui::CalcTextSize("0").x;
    const bool narrow = room < 60 * character;
    return {narrow ? 0 : 11 * character, (narrow ? 9.0f : 19.0f) * character};
}

/// Lays out the lines of the chosen level. Lines are wrapped again only if the width changed.
void lay_out(LogState& state, float width) {
    std::vector<const LogLine*> shown;
    for (const LogLine& line : state.lines)
        if (static_cast<int>(line.level) >= state.min_level) shown.push_back(&line);
    const bool grown = width == state.width && shown.size() >= state.shown.size() &&
                       std::equal(state.shown.begin(), state.shown.end(), shown.begin());
    if (!grown) state.bottoms.clear();
    state.shown = std::move(shown);
    state.width = width;
    const float room = std::max(width - lay_out_columns(width).text, 1.0f);
    for (std::size_t i = state.bottoms.size(); i < state.shown.size(); ++i) {
        const std::string& text = state.shown[i]->text;
        const float height = ImGui::CalcTextSize(text.c_str(), nullptr, false, room).y;
        state.bottoms.push_back((i == 0 ? 0 : state.bottoms[i - 1]) + height +
                                ImGui::GetStyle().ItemSpacing.y);
    }
}

void draw_line(const PanelContext& c, const LogLine& line, TimeNs start, float width, float top) {
    const LogColumns columns = lay_out_columns(width);
    const auto at = [&](float x) { ImGui::SetCursorPos({x, top}); };
    at(0);
    ImGui::TextDisabled(columns.level > 0 ? "%8.2f s" : "%8.2f", seconds(line.monotonic - start));
    ImGui::PushStyleColor(ImGuiCol_Text, level_colour(c.style, line.level));
    if (columns.level > 0) {
        at(columns.level);
        ImGui::TextUnformatted(level_names[static_cast<int>(line.level)]);
    }
    const bool plain = columns.level > 0 || line.level <= LogLevel::info;
    if (plain) ImGui::PopStyleColor();
    at(columns.text);
    ImGui::PushTextWrapPos(width);
    ImGui::TextUnformatted(line.text.c_str());
    ImGui::PopTextWrapPos();
    if (!plain) ImGui::PopStyleColor();
}

void draw_losses(PanelContext& c) {
    const bool lost = !c.snapshot.losses.empty();
    draw_cut_text(losses_text(c.snapshot, c.ui.run_id), 0,
                  lost ? c.style.colours.warn : c.style.colours.text_dim);
    show_tooltip(c.style,
                 "Records that were dropped in the selected run. Times and counts are complete only if no "
                 "records were lost.");
}

}  // namespace

void draw_log(PanelContext& c) {
    auto& state = c.panel_state.get<LogState>();
    for (LogLine& line : log_since(state.next, &state.next)) {
        if (state.lines.empty()) state.start = line.monotonic;
        line.text = to_window_words(line.text);
        state.lines.push_back(std::move(line));
    }
    while (state.lines.size() > max_lines) state.lines.pop_front();
    ImGui::SetNextItemWidth(c.style.em * 8);
    ImGui::Combo("##level", &state.min_level, "everything\0info\0warnings\0errors\0");
    ImGui::SameLine();
    draw_losses(c);
    ImGui::BeginChild("##lines");
    ImGui::PushFont(c.style.mono, ImGui::GetStyle().FontSizeBase * 0.93f);
    lay_out(state, ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ScrollbarSize);
    if (state.shown.empty()) draw_empty_text(c.style, "No messages.");
    const float top = ImGui::GetScrollY(), bottom = top + ImGui::GetWindowHeight();
    const auto first = std::upper_bound(state.bottoms.begin(), state.bottoms.end(), top);
    for (std::size_t i = first - state.bottoms.begin(); i < state.shown.size(); ++i) {
        const float y = i == 0 ? 0 : state.bottoms[i - 1];
        if (y > bottom) break;
        draw_line(c, *state.shown[i], state.start, state.width, y);
    }
    if (!state.shown.empty()) {
        ImGui::SetCursorPos({0, state.bottoms.back()});
        ImGui::Dummy({1, 1});
    }
    ImGui::PopFont();
    if (state.at_end) ImGui::SetScrollHereY(1.0f);
    state.at_end = ImGui::GetScrollY() >= ImGui::GetScrollMaxY() - 1;
    ImGui::EndChild();
}

}  // namespace draftscope
