#include "app/gui/panels/timeline_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/panels/widgets.h"
#include "base/phase_names.h"

namespace draftscope {
namespace {

/// Draws merged intervals: the height shows the covered fraction, and a line on top marks them as merged.
void draw_merged(const LaneArea& area, const Style& style, const TimelineBlock& block, float x, float y,
                 ImU32 colour) {
    const float bottom = y + area.row - 1;
    const float height = std::max((area.row - 3) * block.density, 2.0f);
    area.list->AddRectFilled({x, bottom - height}, {x + 1, bottom}, colour);
    if (block.count > 1) area.list->AddRectFilled({x, y}, {x + 1, y + 1}, to_im(style.colours.text, 0.55f));
}

void draw_interval(const TimeScale& scale, const Style& style, const TimelineBlock& block, float y,
                   ImU32 colour, const std::string& label, bool outlined) {
    const LaneArea& area = scale.area;
    const float x0 = std::max(scale.to_x(block.start), area.min.x);
    const float x1 = std::min(std::max(scale.to_x(block.end), x0 + 1), area.max.x);
    if (x1 <= x0) return;
    if (outlined) {
        area.list->AddRectFilled({x0, y}, {x1, y + area.row - 1}, colour);
        area.list->AddLine({x0, y}, {x0, y + area.row - 1}, to_im(style.colours.text_dim));
    } else {
        area.list->AddRectFilled({x0, y}, {x1, y + area.row - 1}, colour, x1 - x0 > 6 ? 2.0f : 0.0f);
    }
    const float size = 0.78f * style.em;
    const float text = style.ui->CalcTextSizeA(size, 1e9f, 0, label.c_str()).x;
    if (label.empty() || text + 0.5f * style.em > x1 - x0) return;
    area.list->AddText(style.ui, size, {x0 + 0.25f * style.em, y + (area.row - size) / 2 - 1},
                       to_im(outlined ? style.colours.text : style.colours.text_on_data), label.c_str());
}

ImU32 block_colour(const Style& style, const TimelineLane& lane, std::uint8_t phase, std::uint32_t index) {
    if (lane.kind == LaneKind::steps || lane.kind == LaneKind::levels)
        return to_im(index % 2 == 0 ? style.colours.raised : style.colours.raised_hot);
    if (lane.kind == LaneKind::nvtx) return to_im(style.colours.text_dim, 0.7f);
    return phase == 0 ? to_im(style.colours.text_dim, 0.7f) : style.phase(phase);
}

std::string step_label(const Snapshot& snapshot, const StepEntry& entry) {
    if (entry.rounds.count == 0) return fmt::format("{}", entry.row.ordinal + 1);
    int committed = 0;
    for (std::uint32_t r = 0; r < entry.rounds.count; ++r)
        committed += snapshot.rounds[entry.rounds.first + r].row.committed;
    // Every finished round commits at least one token.
    if (committed == 0) return fmt::format("{}: in progress", entry.row.ordinal + 1);
    return fmt::format("{}: +{}", entry.row.ordinal + 1, committed);
}

std::string block_label(const Snapshot& snapshot, const TimelineLane& lane, const TimelineRow& row,
                        const TimelineBlock& block) {
    const std::uint32_t source = row.source(block.index);
    switch (lane.kind) {
        case LaneKind::steps:
            return step_label(snapshot, snapshot.steps[source]);
        case LaneKind::gpu:
            return snapshot.gpu_ops[source].name;
        case LaneKind::nvtx:
            return snapshot.nvtx_ranges[source].name;
        case LaneKind::levels:
            return level_name(row.level(block.index));
        case LaneKind::cpu:
            break;
    }
    return std::string(phase_rows[block.phase < phase_rows.size() ? block.phase : 0].name);
}

std::optional<std::size_t> interval_under_mouse(const TimeScale& scale, const TimelineRow& row, float y) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const LaneArea& area = scale.area;
    if (!ImGui::IsItemHovered() || mouse.y < y || mouse.y >= y + area.row || mouse.x < area.min.x)
        return std::nullopt;
    const auto slack = static_cast<TimeNs>(2 * scale.view.ns_per_column());
    return interval_at(row, scale.to_time(mouse.x), slack);
}

void hatch_gap(const TimeScale& scale, const Style& style, TimeNs from, TimeNs to, float y) {
    const float x0 = scale.to_x(from), x1 = scale.to_x(to);
    if (x1 - x0 < 3) return;
    draw_hatching(scale.area.list, {x0, y}, {x1, y + scale.area.row - 1},
                  to_im(style.colours.text_dim, 0.55f), 4);
}

}  // namespace

float TimeScale::position_to_x(TimeNs position) const {
    const double at = static_cast<double>(position - view.begin) / static_cast<double>(view.end - view.begin);
    return area.min.x + static_cast<float>(std::clamp(at, -0.1, 1.1)) * area.width();
}

TimeNs TimeScale::to_time(float x) const {
    const double at = static_cast<double>(x - area.min.x) / std::max(area.width(), 1.0f);
    const auto position = view.begin + static_cast<TimeNs>(at * static_cast<double>(view.end - view.begin));
    return axis.time(position) + shift;
}

std::optional<LaneHover> draw_lane_row(const TimeScale& scale, const Style& style, const Snapshot& snapshot,
                                       const TimelineLane& lane, const TimelineRow& row, float y,
                                       std::vector<TimelineBlock>& blocks) {
    const bool outlined = lane.kind == LaneKind::steps || lane.kind == LaneKind::levels;
    const std::optional<std::size_t> at = interval_under_mouse(scale, row, y);
    LaneHover hover{&snapshot, &lane, &row, at.value_or(0), 1};
    std::optional<std::uint32_t> drawn;  // an interval across a fold is in both parts but drawn once
    for (const AxisPart& part : scale.axis.parts(scale.view.begin, scale.view.end)) {
        const float left = scale.position_to_x(part.position);
        const float right = scale.position_to_x(part.position + part.end - part.start);
        const TimelineView view{part.start + scale.shift, part.end + scale.shift,
                                std::max(static_cast<int>(std::lround(right - left)), 1)};
        blocks.clear();
        visible_blocks(row, view, blocks);
        for (const TimelineBlock& block : blocks) {
            if (at && *at >= block.index && *at < block.index + block.count) hover.merged = block.count;
            const ImU32 colour = block_colour(style, lane, block.phase, block.index);
            const bool narrow = static_cast<double>(block.end - block.start) < view.ns_per_column();
            if (block.count > 1 || (narrow && !outlined))
                draw_merged(scale.area, style, block, left + static_cast<float>(block.column), y, colour);
            else if (drawn != block.index)
                draw_interval(scale, style, block, y, colour, block_label(snapshot, lane, row, block),
                              outlined);
            drawn = block.index + block.count - 1;
        }
    }
    return at ? std::optional(hover) : std::nullopt;
}

void draw_gaps(const TimeScale& scale, const Style& style, const TimelineLane& lane, const TimelineRow& steps,
               float y) {
    const TimelineRow& row = lane.rows.front();
    // Only steps wide enough to show a gap are examined: at most one per pixel.
    const double column = scale.view.ns_per_column();
    const TimeNs begin = scale.axis.time(scale.view.begin), end = scale.axis.time(scale.view.end);
    for (std::size_t s = steps.first_after(begin); s < steps.size() && steps.start(s) < end; ++s) {
        if (static_cast<double>(steps.end(s) - steps.start(s)) < 6 * column) {
            s = std::max(s, steps.first_starting(steps.start(s) + static_cast<TimeNs>(6 * column), s) - 1);
            continue;
        }
        TimeNs from = std::max(steps.start(s), begin);
        for (std::size_t i = row.first_after(from); i < row.size() && row.start(i) < steps.end(s);) {
            hatch_gap(scale, style, from, row.start(i), y);
            from = row.end(i);
            if (from >= end) break;
            // Spans narrower than a pixel leave no visible gap: continue after the next pixel.
            const bool narrow = static_cast<double>(row.end(i) - row.start(i)) < column;
            const std::size_t next = narrow ? row.first_after(from + static_cast<TimeNs>(column)) : i + 1;
            if (next > i + 1) from = row.end(next - 1);
            i = std::max(next, i + 1);
        }
        hatch_gap(scale, style, from, steps.end(s), y);
    }
}

void draw_folds(const TimeScale& scale, const Style& style, float top, float bottom) {
    const Palette& c = style.colours;
    ImDrawList* list = scale.area.list;
    for (const Fold& fold : scale.axis.folds()) {
        if (fold.position > scale.view.end || fold.position + fold.width < scale.view.begin) continue;
        const float x0 = scale.position_to_x(fold.position),
                    x1 = scale.position_to_x(fold.position + fold.width);
        if (x1 - x0 < 2) {
            list->AddLine({x0, top}, {x0, bottom}, to_im(c.text_dim, 0.6f));
            continue;
        }
        list->AddRectFilled({x0, top}, {x1, bottom}, to_im(c.panel));
        draw_hatching(list, {x0, top}, {x1, bottom}, to_im(c.warn, 0.45f), 6);
        for (const float x : {x0, x1}) list->AddLine({x, top}, {x, bottom}, to_im(c.warn, 0.6f));
        const std::string text = duration_text(fold.length());
        const float size = 0.72f * style.em;
        const ImVec2 extent = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str());
        if (extent.x + 2 > x1 - x0) continue;
        const ImVec2 at((x0 + x1 - extent.x) / 2, (top + bottom - extent.y) / 2);
        list->AddRectFilled({at.x - 1, at.y - 1}, {at.x + extent.x + 1, at.y + extent.y + 1}, to_im(c.panel));
        list->AddText(style.ui, size, at, to_im(c.text), text.c_str());
    }
}

const char* group_name(LaneKind kind) {
    static constexpr const char* names[] = {"steps", "draft levels", "CPU", "GPU", "NVTX"};
    return names[static_cast<std::size_t>(kind)];
}

}  // namespace draftscope
