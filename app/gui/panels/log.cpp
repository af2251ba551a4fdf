#include "base/log.h"

#include <fmt/format.h>
#include <imgui.h>

#include <deque>

#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {
namespace {

constexpr std::size_t most_lines = 5000;

struct LogMemory {
    std::size_t next = 0;
    std::deque<LogLine> lines;
    TimeNs start = 0;
    int least_level = 1;
    bool at_end = true;
};

const char* name_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug:
            return "debug";
        case LogLevel::info:
            return "info";
        case LogLevel::warning:
            return "warning";
        case LogLevel::error:
            return "error";
    }
    return "";
}

ImU32 colour_of(const Style& style, LogLevel level) {
    if (level == LogLevel::error) return to_im(style.colours.bad);
    if (level == LogLevel::warning) return to_im(style.colours.warn);
    return to_im(style.colours.text_dim);
}

void draw_losses(PanelContext& c) {
    const bool lost = !c.snapshot.losses.empty();
    ImGui::PushStyleColor(ImGuiCol_Text, to_im(lost ? c.style.colours.warn : c.style.colours.text_dim));
    text_cut(losses_text(c.snapshot, c.ui.run_id));
    ImGui::PopStyleColor();
    tooltip(c.style,
            "What the recorder had to drop in the selected run. Times and counts are only complete without "
            "losses.");
}

}  // namespace

void draw_log(PanelContext& c) {
    auto& memory = c.memory.get<LogMemory>();
    for (LogLine& line : log_since(memory.next, &memory.next)) {
        if (memory.lines.empty()) memory.start = line.monotonic;
        memory.lines.push_back(std::move(line));
    }
    while (memory.lines.size() > most_lines) memory.lines.pop_front();
    ImGui::SetNextItemWidth(c.style.em * 8);
    ImGui::Combo("##level", &memory.least_level, "everything\0info\0warnings\0errors\0");
    ImGui::SameLine();
    draw_losses(c);
    std::vector<const LogLine*> shown;
    for (const LogLine& line : memory.lines)
        if (static_cast<int>(line.level) >= memory.least_level) shown.push_back(&line);
    if (shown.empty()) {
        draw_empty_text(c.style, "No messages.");
        return;
    }
    ImGui::BeginChild("##lines", ImVec2(0, 0), ImGuiChildFlags_None, ImGuiWindowFlags_HorizontalScrollbar);
    ImGui::PushFont(c.style.mono, ImGui::GetStyle().FontSizeBase * 0.93f);
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(shown.size()));
    while (clipper.Step())
        for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
            const LogLine& line = *shown[static_cast<std::size_t>(i)];
            ImGui::TextDisabled("%8.2f s", seconds(line.monotonic - memory.start));
            ImGui::SameLine();
            ImGui::PushStyleColor(ImGuiCol_Text, colour_of(c.style, line.level));
            ImGui::Text("%-7s", name_of(line.level));
            ImGui::PopStyleColor();
            ImGui::SameLine();
            ImGui::TextUnformatted(line.text.c_str());
        }
    ImGui::PopFont();
    if (memory.at_end) ImGui::SetScrollHereY(1.0f);
    memory.at_end = ImGui::GetScrollY() >= ImGui::GetScrollMaxY() - 1;
    ImGui::EndChild();
}

}  // namespace draftscope
