#include "app/gui/panels/round_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "app/gui/models/phases.h"
#include "app/gui/models/timeline.h"
#include "app/gui/panels/widgets.h"
#include "base/phase_names.h"

namespace draftscope {
namespace {

struct RoundPhasesState {
    RebuildThrottle bar_rebuild;
    std::array<double, max_phases> median_ns{};
    PhaseBars bars;
};

struct Line {
    int phase_id = 0;
    double ns = 0, median_ns = 0;
};

constexpr std::size_t max_lines = 11;

float line_height(const Style& style) {
    return 1.12f * style.em;
}

std::vector<Line> make_lines(const RoundPhasesState& state, const PhaseBar& bar, std::size_t room) {
    std::vector<Line> lines;
    for (const PhaseRow& phase : phase_rows) {
        const std::size_t id = phase.id;
        if (bar.part_ns[id] > 0) lines.push_back({phase.id, bar.part_ns[id], state.median_ns[id]});
    }
    while (lines.size() > room)
        lines.erase(std::min_element(lines.begin(), lines.end(),
                                     [](const Line& a, const Line& b) { return a.ns < b.ns; }));
    return lines;
}

void draw_line(const Style& style, ImDrawList* list, ImVec2 at, float width, const Line& line, double whole,
               double scale) {
    const float size = 0.85f * style.em, name = 5.4f * style.em, numbers = 8.6f * style.em;
    const float h = line_height(style), track = std::max(width - name - numbers, 2 * style.em);
    const PhaseRow& phase = phase_rows[line.phase_id];
    list->AddText(style.ui, size, at, to_im(style.colours.text_dim), std::string(phase.name).c_str());
    const ImVec2 min(at.x + name, at.y + 0.12f * h);
    const ImVec2 max(min.x + std::max(track * static_cast<float>(line.ns / scale), 1.0f), at.y + 0.78f * h);
    if (line.phase_id == remainder_phase_id)
        draw_hatching(list, min, max, to_im(style.colours.text_dim), 4);
    else
        list->AddRectFilled(min, max, style.phase(line.phase_id), 2);
    if (line.median_ns > 0) {
        const float x = min.x + track * static_cast<float>(std::min(line.median_ns / scale, 1.0));
        list->AddLine({x, min.y - 2}, {x, max.y + 2}, to_im(style.colours.text), 1.5f);
    }
    const auto right = [&](const std::string& text, float edge) {
        const float w = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str()).x;
        list->AddText(style.ui, size, {edge - w, at.y}, to_im(style.colours.text), text.c_str());
    };
    right(duration_text(static_cast<TimeNs>(line.ns)), at.x + width - 3.6f * style.em);
    right(fmt::format("{:.1f} %", 100 * line.ns / std::max(whole, 1.0)), at.x + width - 0.3f * style.em);
}

std::string title(const Snapshot& snapshot, const PhaseBar& bar, std::size_t step_index, bool in_flight) {
    const StepRow& step = snapshot.steps[step_index].row;
    std::string text =
        fmt::format("step {}: {}{}", step.ordinal + 1, duration_text(static_cast<TimeNs>(bar.step_ns)),
                    in_flight ? " so far" : "");
    if (step.paused_ns > 0) text += fmt::format(" + {} paused", duration_text(step.paused_ns));
    if (in_flight) return text + ", in progress";
    if (!step.time_counts()) text += fmt::format(", not counted ({})", to_text(step.excluded));
    return text;
}

}  // namespace

float round_phases_height(const Style& style) {
    return 1.5f * style.em + static_cast<float>(max_lines) * line_height(style);
}

void draw_round_phases(PanelContext& context, const Snapshot& snapshot, std::size_t step_index, ImVec2 size) {
    RoundPhasesState& state = context.panel_state.get<RoundPhasesState>();
    const Style& style = context.style;
    state.median_ns.fill(0);
    for (const PhaseTableRow& row : shared_phases(context).rows)
        state.median_ns[row.phase_id] = row.median_us * 1e3;
    const bool in_flight = &snapshot != &context.snapshot;
    const std::uint64_t key = in_flight ? ~std::uint64_t{0} : step_index;
    state.bar_rebuild.update(context, key, [&] {
        state.bars = build_phase_bars(snapshot, context.ui.run_id, step_index, step_index + 1, 1);
    });
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::Dummy(size);
    if (state.bars.bars.empty()) return;
    const PhaseBar& bar = state.bars.bars.front();
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->PushClipRect(at, {at.x + size.x, at.y + size.y}, true);
    const std::string heading = title(snapshot, bar, step_index, in_flight);
    list->AddText(style.ui_bold, 0.9f * style.em, at, to_im(style.colours.text), heading.c_str());
    const float heading_width = style.ui_bold->CalcTextSizeA(0.9f * style.em, 1e9f, 0, heading.c_str()).x;
    const char* legend = context.ui.range ? "| median in the range" : "| median of the run";
    float legend_width = style.ui->CalcTextSizeA(0.8f * style.em, 1e9f, 0, legend).x;
    const float free = size.x - heading_width - 1.3f * style.em;
    if (legend_width > free) {
        legend = "| median";
        legend_width = style.ui->CalcTextSizeA(0.8f * style.em, 1e9f, 0, legend).x;
    }
    if (legend_width <= free)
        list->AddText(style.ui, 0.8f * style.em, {at.x + size.x - legend_width - 0.3f * style.em, at.y},
                      to_im(style.colours.text_dim), legend);
    const auto room =
        static_cast<std::size_t>(std::max((size.y - 1.4f * style.em) / line_height(style), 0.0f));
    const std::vector<Line> lines = make_lines(state, bar, room);
    double scale = 1;
    for (const Line& line : lines) scale = std::max({scale, line.ns, line.median_ns});
    float y = at.y + 1.4f * style.em;
    for (const Line& line : lines) {
        draw_line(style, list, {at.x, y}, size.x, line, bar.step_ns, scale);
        y += line_height(style);
    }
    list->PopClipRect();
}

void draw_draft_phases(const Style& style, const StepPhases& decoded, const StepPhases& what_if) {
    constexpr std::size_t first = 2, end = 10;  // backbone to rerank
    const auto sum = [](const StepPhases& of) {
        return std::accumulate(of.ns.begin() + first, of.ns.begin() + end, TimeNs{0});
    };
    const TimeNs longest = std::max({sum(decoded), sum(what_if), TimeNs{1}});
    for (const StepPhases* bar : {&decoded, &what_if}) {
        const std::string name = bar == &decoded ? "drafting, as decoded" : "drafting, what if";
        const float h = ImGui::GetTextLineHeight(), room = ImGui::GetContentRegionAvail().x;
        const ImVec2 at = ImGui::GetCursorScreenPos();
        ImGui::InvisibleButton(name.c_str(), {room, h});
        const bool hovered = ImGui::IsItemHovered();
        std::string tip = name + ":";
        ImDrawList* list = ImGui::GetWindowDrawList();
        const float width = std::max(room - 15 * style.em, 2 * style.em);
        list->AddText(at, to_im(style.colours.text_dim), name.c_str());
        float x = at.x + 10 * style.em;
        for (std::size_t id = first; id < end; ++id) {
            if (bar->ns[id] == 0) continue;
            const float next = x + width * static_cast<float>(bar->ns[id]) / static_cast<float>(longest);
            list->AddRectFilled({x, at.y + 0.3f * h}, {next, at.y + 0.8f * h},
                                style.phase(static_cast<int>(id)));
            x = next;
            tip += fmt::format("\n{} {}", phase_rows[id].name, duration_text(bar->ns[id]));
        }
        const std::string whole = sum(*bar) == 0 ? "not known" : duration_text(sum(*bar));
        list->AddText({x + 0.5f * style.em, at.y}, to_im(style.colours.text), whole.c_str());
        if (hovered)
            ImGui::SetTooltip(
                "%s\n\nThe what-if was drafted once more for this, without its catch-up, which the "
                "round as decoded has.\nBoth are single measurements. Verification is not measured again.",
                tip.c_str());
    }
}

}  // namespace draftscope
