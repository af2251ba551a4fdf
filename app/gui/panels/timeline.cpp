#include "app/gui/models/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/panels/rebuild.h"
#include "app/gui/panels/round_phases.h"
#include "app/gui/panels/widgets.h"
#include "capture/phase_names.h"

namespace draftscope {
namespace {

constexpr TimeNs least_span_ns = 200;
constexpr double rounds_at_first = 1.6;

struct TimelineMemory {
    TimelineIndex index;
    std::uint64_t data_key = ~std::uint64_t{0};
    RowId run_id = 0;
    TimelineView view;
    bool following = true;  ///< the view keeps to the selected round until the user moves it
    std::optional<std::size_t> centred_round;
    std::optional<double> drag_from;  ///< time at which a range drag began
    std::vector<TimelineBlock> blocks;
    TimelineIndex beside;  ///< lanes of another profiler's timeline (JobStatus::beside)
    const Snapshot* beside_of = nullptr;
    TimeNs beside_shift = 0;  ///< its time minus ours
};

struct Area {
    ImVec2 min, max;  ///< of the lanes, names excluded
    float names = 0;  ///< width of the column with the lanes' names
    float row = 0;    ///< height of one row
    ImDrawList* list = nullptr;
    float width() const { return max.x - min.x; }
};

float x_of(const TimelineView& view, const Area& area, TimeNs t) {
    const double at = static_cast<double>(t - view.begin) / static_cast<double>(view.end - view.begin);
    return area.min.x + static_cast<float>(std::clamp(at, -0.1, 1.1)) * area.width();
}

TimeNs time_at(const TimelineView& view, const Area& area, float x) {
    const double at = static_cast<double>(x - area.min.x) / std::max(area.width(), 1.0f);
    return view.begin + static_cast<TimeNs>(at * static_cast<double>(view.end - view.begin));
}

void show(TimelineMemory& memory, TimeNs begin, TimeNs end) {
    const TimeNs margin = std::max<TimeNs>((end - begin) / 50, 1);
    memory.view.begin = begin - margin;
    memory.view.end = std::max(end + margin, begin + least_span_ns);
}

std::optional<std::size_t> selected_step(const PanelContext& context, RowId run_id) {
    const Snapshot& snapshot = context.snapshot;
    if (!context.ui.round || *context.ui.round >= snapshot.rounds.size()) return std::nullopt;
    const std::uint32_t step = snapshot.rounds[*context.ui.round].step_index;
    if (step >= snapshot.steps.size() || snapshot.steps[step].row.run_id != run_id) return std::nullopt;
    return step;
}

const StepRow* selected_step_row(const PanelContext& context, RowId run_id) {
    const std::optional<std::size_t> step = selected_step(context, run_id);
    return step ? &context.snapshot.steps[*step].row : nullptr;
}

/// Keeps the selected round in sight: a few rounds wide at first, then the width the user has chosen.
void follow_round(TimelineMemory& memory, const PanelContext& context, bool changed) {
    const StepRow* step = selected_step_row(context, memory.run_id);
    if (step == nullptr) {
        if (changed) show(memory, memory.index.begin(), memory.index.end());
        return;
    }
    if (memory.centred_round == context.ui.round && !changed) return;
    memory.centred_round = context.ui.round;
    const double middle = 0.5 * static_cast<double>(step->start_ns + step->end_ns);
    const auto length = static_cast<double>(std::max<TimeNs>(step->end_ns - step->start_ns, 1));
    double span = static_cast<double>(memory.view.end - memory.view.begin);
    if (changed || memory.following) span = length * rounds_at_first;
    const double latest = static_cast<double>(memory.index.end()) + 0.03 * span;
    const double centre = std::min(middle, std::max(latest - span / 2, static_cast<double>(step->start_ns)));
    const bool visible = step->start_ns >= memory.view.begin && step->end_ns <= memory.view.end;
    if (visible && !changed && !memory.following) return;
    memory.view.begin = static_cast<TimeNs>(centre - span / 2);
    memory.view.end = static_cast<TimeNs>(centre + span / 2);
}

void fit_view(TimelineMemory& memory, const PanelContext& context) {
    if (context.ui.range)
        show(memory, context.ui.range->start_ns, context.ui.range->end_ns);
    else if (const StepRow* step = selected_step_row(context, memory.run_id); step != nullptr)
        show(memory, step->start_ns, step->end_ns);
    else
        show(memory, memory.index.begin(), memory.index.end());
    memory.following = false;
}

void clamp_view(TimelineMemory& memory) {
    const TimeNs whole = std::max<TimeNs>(memory.index.end() - memory.index.begin(), least_span_ns);
    TimelineView& view = memory.view;
    const TimeNs span = std::clamp(view.end - view.begin, least_span_ns, whole + whole / 5 + 2);
    const TimeNs low = memory.index.begin() - whole / 10 - 1;
    const TimeNs high = std::max(memory.index.end() + whole / 10 + 1 - span, low);
    view.begin = std::clamp(view.begin, low, high);
    view.end = view.begin + span;
}

void keys_and_wheel(TimelineMemory& memory, const PanelContext& context, const Area& area) {
    const ImGuiIO& io = ImGui::GetIO();
    const auto span = static_cast<double>(memory.view.end - memory.view.begin);
    const auto pan = [&](double part) {
        memory.view.begin += static_cast<TimeNs>(part * span);
        memory.view.end += static_cast<TimeNs>(part * span);
        memory.following = false;
    };
    const auto zoom = [&](double factor, double at) {
        const int columns = memory.view.columns;
        memory.view = zoom_view(memory.view, factor, at, least_span_ns);
        memory.view.columns = columns;
        memory.following = false;
    };
    const double pointer =
        std::clamp<double>((io.MousePos.x - area.min.x) / std::max(area.width(), 1.0f), 0, 1);
    if (ImGui::IsItemHovered()) {
        if (io.MouseWheel != 0 && !io.KeyShift) zoom(std::pow(0.85, io.MouseWheel), pointer);
        if (io.MouseWheel != 0 && io.KeyShift) pan(-0.1 * io.MouseWheel);
        if (io.MouseWheelH != 0) pan(-0.1 * io.MouseWheelH);
    }
    if (ImGui::IsWindowFocused() && !io.WantTextInput && !io.KeyCtrl && !io.KeyAlt) {
        const double speed = 1.6 * static_cast<double>(std::min(io.DeltaTime, 0.1f));
        if (ImGui::IsKeyDown(ImGuiKey_W)) zoom(1 - speed, pointer);
        if (ImGui::IsKeyDown(ImGuiKey_S)) zoom(1 + speed, pointer);
        if (ImGui::IsKeyDown(ImGuiKey_A)) pan(-speed);
        if (ImGui::IsKeyDown(ImGuiKey_D)) pan(speed);
    }
    if (context.ui.fit_requested) fit_view(memory, context);
}

/// Left drag selects a range, middle or right drag moves.
void drags(TimelineMemory& memory, PanelContext& context, const Area& area) {
    const ImGuiIO& io = ImGui::GetIO();
    for (const ImGuiMouseButton button : {ImGuiMouseButton_Right, ImGuiMouseButton_Middle})
        if (ImGui::IsItemHovered() && ImGui::IsMouseDragging(button, 2)) {
            const double per_pixel =
                static_cast<double>(memory.view.end - memory.view.begin) / std::max(area.width(), 1.0f);
            const auto delta = static_cast<TimeNs>(-io.MouseDelta.x * per_pixel);
            memory.view.begin += delta;
            memory.view.end += delta;
            memory.following = false;
        }
    if (ImGui::IsItemActivated())
        memory.drag_from = static_cast<double>(time_at(memory.view, area, io.MousePos.x));
    if (!memory.drag_from || !ImGui::IsItemActive()) {
        memory.drag_from.reset();
        return;
    }
    if (io.MouseDragMaxDistanceSqr[ImGuiMouseButton_Left] < 16) return;
    const auto from = static_cast<TimeNs>(*memory.drag_from);
    const TimeNs to = time_at(memory.view, area, io.MousePos.x);
    if (from != to) context.ui.range = TimeRange{std::min(from, to), std::max(from, to)};
}

void draw_axis(const Area& area, const Style& style, const TimelineView& view) {
    const float size = 0.78f * style.em;
    const TimeNs step = tick_step(view.end - view.begin, static_cast<int>(area.width() / (6 * style.em)));
    TimeNs first = view.begin / step * step;
    if (first < view.begin) first += step;
    for (TimeNs t = first; t <= view.end; t += step) {
        const float x = x_of(view, area, t);
        area.list->AddLine({x, area.min.y}, {x, area.max.y}, to_im(style.colours.line, 0.6f));
        area.list->AddText(style.ui, size, {x + 0.2f * style.em, area.min.y}, to_im(style.colours.text_dim),
                           duration_text(t).c_str());
    }
}

/// Merged intervals: as high as the column is full, under a line that says "there is more when you zoom in".
void draw_merged(const Area& area, const Style& style, const TimelineBlock& block, float y, ImU32 colour) {
    const float x = area.min.x + static_cast<float>(block.column);
    const float bottom = y + area.row - 1;
    const float height = std::max((area.row - 3) * block.density, 2.0f);
    area.list->AddRectFilled({x, bottom - height}, {x + 1, bottom}, colour);
    if (block.count > 1) area.list->AddRectFilled({x, y}, {x + 1, y + 1}, to_im(style.colours.text, 0.55f));
}

void draw_interval(const Area& area, const Style& style, const TimelineView& view, const TimelineBlock& block,
                   float y, ImU32 colour, const std::string& label, bool outlined) {
    const float x0 = std::max(x_of(view, area, block.start), area.min.x);
    const float x1 = std::min(std::max(x_of(view, area, block.end), x0 + 1), area.max.x);
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

std::string label_of(const Snapshot& snapshot, const TimelineLane& lane, const TimelineRow& row,
                     const TimelineBlock& block) {
    const std::uint32_t source = row.source(block.index);
    switch (lane.kind) {
        case LaneKind::steps: {
            const StepEntry& entry = snapshot.steps[source];
            if (entry.rounds.count == 0) return fmt::format("{}", entry.row.ordinal + 1);
            int committed = 0;
            for (std::uint32_t r = 0; r < entry.rounds.count; ++r)
                committed += snapshot.rounds[entry.rounds.first + r].row.committed;
            return fmt::format("{}: +{}", entry.row.ordinal + 1, committed);
        }
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

struct Hover {
    const Snapshot* snapshot = nullptr;
    const TimelineLane* lane = nullptr;
    const TimelineRow* row = nullptr;
    std::size_t index = 0;
    std::uint32_t merged = 1;
};

std::optional<Hover> draw_row(PanelContext& context, TimelineMemory& memory, const Area& area,
                              const TimelineLane& lane, const TimelineRow& row, float y) {
    const Style& style = context.style;
    memory.blocks.clear();
    visible_blocks(row, memory.view, memory.blocks);
    const bool outlined = lane.kind == LaneKind::steps || lane.kind == LaneKind::levels;
    for (const TimelineBlock& block : memory.blocks) {
        const ImU32 colour = block_colour(style, lane, block.phase, block.index);
        const bool narrow = static_cast<double>(block.end - block.start) < memory.view.ns_per_column();
        if (block.count > 1 || (narrow && !outlined))
            draw_merged(area, style, block, y, colour);
        else
            draw_interval(area, style, memory.view, block, y, colour,
                          label_of(context.snapshot, lane, row, block), outlined);
    }
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (!ImGui::IsItemHovered() || mouse.y < y || mouse.y >= y + area.row || mouse.x < area.min.x)
        return std::nullopt;
    const TimeNs slack = static_cast<TimeNs>(2 * memory.view.ns_per_column());
    const std::optional<std::size_t> at = interval_at(row, time_at(memory.view, area, mouse.x), slack);
    if (!at) return std::nullopt;
    Hover hover{&context.snapshot, &lane, &row, *at, 1};
    for (const TimelineBlock& block : memory.blocks)
        if (*at >= block.index && *at < block.index + block.count) hover.merged = block.count;
    return hover;
}

void hatch_gap(const TimelineMemory& memory, const Area& area, const Style& style, TimeNs from, TimeNs to,
               float y) {
    if (static_cast<double>(to - from) < 3 * memory.view.ns_per_column()) return;
    hatch(area.list, {x_of(memory.view, area, from), y}, {x_of(memory.view, area, to), y + area.row - 1},
          to_im(style.colours.text_dim, 0.55f), 4);
}

/// A gap on the critical lane inside a step is time that no phase claims: hatched, like the remainder.
void draw_gaps(const TimelineMemory& memory, const Area& area, const Style& style, const TimelineLane& lane,
               const TimelineRow& steps, float y) {
    const TimelineRow& row = lane.rows.front();
    // Only steps wide enough to show a gap are looked into: at most as many as there are pixels.
    const double column = memory.view.ns_per_column();
    for (std::size_t s = steps.first_after(memory.view.begin);
         s < steps.size() && steps.start(s) < memory.view.end; ++s) {
        if (static_cast<double>(steps.end(s) - steps.start(s)) < 6 * column) {
            s = std::max(s, steps.first_starting(steps.start(s) + static_cast<TimeNs>(6 * column), s) - 1);
            continue;
        }
        TimeNs from = std::max(steps.start(s), memory.view.begin);
        for (std::size_t i = row.first_after(from); i < row.size() && row.start(i) < steps.end(s);) {
            hatch_gap(memory, area, style, from, row.start(i), y);
            from = row.end(i);
            if (from >= memory.view.end) break;
            // Spans below a pixel cannot leave a visible gap one by one: go on after the next pixel's worth.
            const bool narrow = static_cast<double>(row.end(i) - row.start(i)) < column;
            const std::size_t next = narrow ? row.first_after(from + static_cast<TimeNs>(column)) : i + 1;
            if (next > i + 1) from = row.end(next - 1);
            i = std::max(next, i + 1);
        }
        hatch_gap(memory, area, style, from, steps.end(s), y);
    }
}

void draw_marks(const PanelContext& context, const TimelineMemory& memory, const Area& area) {
    const Palette& c = context.style.colours;
    const StepRow* step = selected_step_row(context, memory.run_id);
    if (step != nullptr) {
        const float x0 = x_of(memory.view, area, step->start_ns), x1 = x_of(memory.view, area, step->end_ns);
        area.list->AddRectFilled({x0, area.min.y}, {std::max(x1, x0 + 2), area.max.y},
                                 to_im(c.accent, 0.10f));
        area.list->AddLine({x0, area.min.y}, {x0, area.max.y}, to_im(c.accent, 0.8f), 1.5f);
        area.list->AddLine({x1, area.min.y}, {x1, area.max.y}, to_im(c.accent, 0.8f), 1.5f);
    }
    if (!context.ui.range) return;
    const float x0 = x_of(memory.view, area, context.ui.range->start_ns);
    const float x1 = x_of(memory.view, area, context.ui.range->end_ns);
    area.list->AddRectFilled({x0, area.min.y}, {x1, area.max.y}, to_im(c.warn, 0.12f));
    for (const float x : {x0, x1}) area.list->AddLine({x, area.min.y}, {x, area.max.y}, to_im(c.warn), 1.5f);
    const std::string text = duration_text(context.ui.range->end_ns - context.ui.range->start_ns);
    area.list->AddText(context.style.ui_bold, 0.85f * context.style.em,
                       {x0 + 0.3f * context.style.em, area.max.y - 1.2f * context.style.em}, to_im(c.text),
                       text.c_str());
}

const char* group_name(LaneKind kind) {
    switch (kind) {
        case LaneKind::steps:
            return "steps";
        case LaneKind::levels:
            return "levels";
        case LaneKind::cpu:
            return "CPU";
        case LaneKind::gpu:
            return "GPU";
        case LaneKind::nvtx:
            return "NVTX";
    }
    return "";
}

std::optional<Hover> draw_lanes(PanelContext& context, TimelineMemory& memory, const Area& area) {
    const Style& style = context.style;
    const float size = 0.8f * style.em;
    std::optional<Hover> hover;
    float y = area.min.y + 1.25f * style.em;
    const TimelineLane& first = memory.index.lanes().front();
    const TimelineRow* steps = first.kind == LaneKind::steps ? &first.rows.front() : nullptr;
    for (const TimelineLane& lane : memory.index.lanes()) {
        const bool plain = lane.kind == LaneKind::steps || lane.kind == LaneKind::levels;
        const std::string name = plain ? group_name(lane.kind)
                                 : lane.kind == LaneKind::cpu
                                     ? lane.name
                                     : fmt::format("{} {}", group_name(lane.kind), lane.name);
        for (std::size_t row = 0; row < std::min<std::size_t>(lane.rows.size(), 2); ++row)
            area.list->AddText(style.ui, size,
                               {area.min.x - area.names + (row == 0 ? 0 : 0.8f * style.em),
                                y + static_cast<float>(row) * area.row + (area.row - size) / 2 - 1},
                               to_im(style.colours.text_dim), row == 0 ? name.c_str() : "nested");
        area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
        for (const TimelineRow& row : lane.rows) {
            if (y < area.max.y)
                if (const auto at = draw_row(context, memory, area, lane, row, y)) hover = at;
            if (steps != nullptr && lane.kind == LaneKind::cpu && lane.key == 0 && &row == &lane.rows.front())
                draw_gaps(memory, area, style, lane, *steps, y);
            y += area.row;
        }
        area.list->PopClipRect();
        y += 0.45f * style.em;
    }
    return hover;
}

/// Of the other timeline, the step with the selected one's number starts where that one starts, so that both
/// go on together; without steps the beginnings meet.
TimeNs beside_shift(const TimelineMemory& memory, const PanelContext& context, const Snapshot& other) {
    const StepRow* step = selected_step_row(context, memory.run_id);
    if (step == nullptr || other.steps.empty()) return memory.beside.begin() - memory.index.begin();
    const auto last = static_cast<int>(other.steps.size()) - 1;
    return other.steps[static_cast<std::size_t>(std::clamp(step->ordinal, 0, last))].row.start_ns -
           step->start_ns;
}

void update_beside(TimelineMemory& memory, const PanelContext& context) {
    const Snapshot* other = context.status.beside.get();
    if (other != memory.beside_of) {
        memory.beside = TimelineIndex();
        memory.beside_of = other;
        if (other != nullptr && !other->runs.empty()) memory.beside.update(*other, other->runs.front().id);
    }
    if (other != nullptr) memory.beside_shift = beside_shift(memory, context, *other);
}

/// The lanes of the other timeline under ours, on our time scale.
std::optional<Hover> draw_beside(PanelContext& context, TimelineMemory& memory, const Area& area, float y) {
    if (memory.beside.empty()) return std::nullopt;
    const Style& style = context.style;
    const float size = 0.8f * style.em;
    area.list->AddLine({area.min.x - area.names, y}, {area.max.x, y}, to_im(style.colours.line));
    y += 0.3f * style.em;
    const std::string title = fmt::format("beside: {}", memory.beside_of->runs.front().name);
    area.list->AddText(style.ui, size, {area.min.x, y}, to_im(style.colours.text_dim), title.c_str());
    y += 1.2f * style.em;
    PanelContext other{*memory.beside_of, context.status, context.ui,    context.config,
                       context.commands,  context.style,  context.memory};
    const TimelineView ours = memory.view;
    memory.view.begin += memory.beside_shift;
    memory.view.end += memory.beside_shift;
    std::optional<Hover> hover;
    for (const TimelineLane& lane : memory.beside.lanes()) {
        if (lane.kind == LaneKind::levels) continue;  // other engines' ranges say nothing of levels
        const std::string name = lane.kind == LaneKind::cpu ? fmt::format("thread {}", lane.sub_key)
                                 : lane.kind == LaneKind::steps || lane.kind == LaneKind::levels
                                     ? std::string(group_name(lane.kind))
                                     : fmt::format("{} {}", group_name(lane.kind), lane.name);
        area.list->AddText(style.ui, size, {area.min.x - area.names, y + (area.row - size) / 2 - 1},
                           to_im(style.colours.text_dim), name.c_str());
        area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
        for (const TimelineRow& row : lane.rows) {
            if (y < area.max.y)
                if (const auto at = draw_row(other, memory, area, lane, row, y)) hover = at;
            y += area.row;
        }
        area.list->PopClipRect();
        y += 0.45f * style.em;
    }
    memory.view = ours;
    return hover;
}

void interval_tooltip(const PanelContext& context, const Hover& hover) {
    if (!ImGui::BeginTooltip()) return;
    const std::vector<std::string> lines =
        describe_interval(*hover.snapshot, *hover.lane, *hover.row, hover.index);
    ImGui::PushFont(context.style.ui_bold, 0);
    ImGui::TextUnformatted(lines.front().c_str());
    ImGui::PopFont();
    for (std::size_t i = 1; i < lines.size(); ++i) ImGui::TextUnformatted(lines[i].c_str());
    if (hover.merged > 1) {
        ImGui::PushStyleColor(ImGuiCol_Text, to_im(context.style.colours.text_dim));
        ImGui::Text("one of %u in this pixel: zoom in to tell them apart", hover.merged);
        ImGui::PopStyleColor();
    }
    ImGui::EndTooltip();
}

float lanes_height(const TimelineIndex& index, float row, float em) {
    float height = 1.25f * em;
    for (const TimelineLane& lane : index.lanes())
        height += static_cast<float>(lane.rows.size()) * row + 0.45f * em;
    return height;
}

void act(PanelContext& context, TimelineMemory& memory, const std::optional<Hover>& hover) {
    if (hover && !ImGui::IsMouseDown(ImGuiMouseButton_Left)) interval_tooltip(context, *hover);
    const ImGuiIO& io = ImGui::GetIO();
    if (!ImGui::IsItemHovered() || !ImGui::IsMouseReleased(ImGuiMouseButton_Left) ||
        io.MouseDragMaxDistanceSqr[ImGuiMouseButton_Left] >= 16)
        return;
    context.ui.range.reset();
    if (!hover || hover->snapshot != &context.snapshot) return;
    if (const auto round = round_of_interval(context.snapshot, *hover->lane, *hover->row, hover->index)) {
        memory.centred_round = *round;  // it is in sight already: the view stays
        context.ui.select_round(*round, context.snapshot.rounds.size());
    }
}

}  // namespace

void draw_timeline(PanelContext& context) {
    TimelineMemory& memory = context.memory.get<TimelineMemory>();
    const Style& style = context.style;
    const bool changed = memory.run_id != context.ui.run_id || memory.index.empty();
    if (memory.data_key != context.ui.data_key || memory.run_id != context.ui.run_id) {
        memory.index.update(context.snapshot, context.ui.run_id);
        memory.data_key = context.ui.data_key;
        memory.run_id = context.ui.run_id;
    }
    update_beside(memory, context);
    if (memory.index.empty())
        return draw_empty_text(style, context.snapshot.runs.empty()
                                          ? "No run yet. Each phase of each round appears here as a bar."
                                          : "This run has no recorded spans.");
    const ImVec2 room = ImGui::GetContentRegionAvail();
    Area area;
    area.row = 1.35f * style.em;
    const auto needed = [&](float row) {
        const float beside =
            memory.beside.empty() ? 0 : 1.5f * style.em + lanes_height(memory.beside, row, style.em);
        return lanes_height(memory.index, row, style.em) + beside;
    };
    const float least = needed(area.row);
    const float table = std::min(room.y - least - style.em, round_phases_height(style));
    const bool with_table = table > 5 * style.em && selected_step(context, memory.run_id).has_value();
    const float lanes_room = room.y - (with_table ? table + style.em : 0);
    area.row = std::clamp(area.row * lanes_room / std::max(least, 1.0f), area.row, 2.4f * style.em);
    area.names = 5.4f * style.em;
    const float height = std::max(lanes_room, needed(area.row));
    const ImVec2 start = ImGui::GetCursorScreenPos();
    area.min = {start.x + area.names, start.y};
    area.max = {start.x + std::max(room.x, area.names + 4 * style.em), start.y + height};
    area.list = ImGui::GetWindowDrawList();
    ImGui::InvisibleButton("lanes", {area.max.x - start.x, height});
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    memory.view.columns = std::max(static_cast<int>(area.width()), 1);
    follow_round(memory, context, changed);
    keys_and_wheel(memory, context, area);
    drags(memory, context, area);
    clamp_view(memory);
    area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
    draw_axis(area, style, memory.view);
    area.list->PopClipRect();
    std::optional<Hover> hover = draw_lanes(context, memory, area);
    const float below = area.min.y + lanes_height(memory.index, area.row, style.em);
    if (const auto other = draw_beside(context, memory, area, below)) hover = other;
    area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
    draw_marks(context, memory, area);
    area.list->PopClipRect();
    act(context, memory, hover);
    if (const auto step = selected_step(context, memory.run_id); with_table && step)
        draw_round_phases(context, *step, {room.x, table});
}

}  // namespace draftscope
