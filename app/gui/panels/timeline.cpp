#include "app/gui/models/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "app/gui/models/selection.h"
#include "app/gui/panels/round_phases.h"
#include "app/gui/panels/timeline_lanes.h"
#include "app/gui/panels/widgets.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

constexpr TimeNs min_span_ns = 200;
const auto no_lanes = std::make_shared<const RunLanes>();

struct TimelineState {
    std::shared_ptr<const RunLanes> recorded = no_lanes;
    std::shared_ptr<const RunLanes> flight = no_lanes;  ///< of the round in flight
    FoldedAxis axis;
    AxisOrigin origin;
    std::uint64_t data_key = ~std::uint64_t{0};
    RowId run_id = 0;
    TimelineView view;  ///< positions on the axis
    ViewWidth width = ViewWidth::steps;
    std::pair<TimeNs, TimeNs> centred{-1, -1};  ///< last step shown automatically
    std::optional<double> drag_from;            ///< start time of a range drag
    std::vector<TimelineBlock> blocks;
    std::shared_ptr<const RunLanes> overlay = no_lanes;  ///< of the imported timeline
    const Snapshot* overlay_snapshot = nullptr;
    TimeNs overlay_shift = 0;  ///< its time minus ours

    bool empty() const { return recorded->empty() && flight->empty(); }
    TimeNs begin() const { return recorded->empty() ? flight->begin : recorded->begin; }
    TimeNs end() const { return flight->empty() ? recorded->end : std::max(recorded->end, flight->end); }
    TimeScale scale(const LaneArea& area, TimeNs shift = 0) const { return {axis, view, area, shift}; }
};

void show(TimelineState& state, TimeNs start, TimeNs stop) {
    const TimeNs begin = state.axis.position(start), end = state.axis.position(stop);
    const TimeNs margin = std::max<TimeNs>((end - begin) / 50, 1);
    state.view.begin = begin - margin;
    state.view.end = std::max(end + margin, begin + min_span_ns);
}

/// Capture and index of the selected round's step.
struct SelectedStep {
    const Snapshot* snapshot = nullptr;
    std::size_t index = 0;
    const StepRow& row() const { return snapshot->steps[index].row; }
};

std::optional<SelectedStep> selected_step(const PanelContext& context, RowId run_id) {
    const Snapshot& snapshot = context.snapshot;
    if (in_flight_selected(snapshot, context.ui)) return SelectedStep{snapshot.in_flight.get(), 0};
    if (!context.ui.round || *context.ui.round >= snapshot.rounds.size()) return std::nullopt;
    const std::uint32_t step = snapshot.rounds[*context.ui.round].step_index;
    if (step >= snapshot.steps.size() || snapshot.steps[step].row.run_id != run_id) return std::nullopt;
    return SelectedStep{&snapshot, step};
}

const StepRow* selected_step_row(const PanelContext& context, RowId run_id) {
    const std::optional<SelectedStep> step = selected_step(context, run_id);
    return step ? &step->row() : nullptr;
}

/// Keeps the selected step in view.
void follow_round(TimelineState& state, const PanelContext& context, bool changed) {
    const StepRow* step = selected_step_row(context, state.run_id);
    if (changed) state.width = ViewWidth::steps;
    if (step == nullptr) {
        if (changed) show(state, state.begin(), state.end());
        return;
    }
    const std::pair times(step->start_ns, step->end_ns);
    if (state.centred == times && !changed) return;
    const auto positions = [&](std::pair<TimeNs, TimeNs> of) {
        return std::pair(state.axis.position(of.first), state.axis.position(of.second));
    };
    state.view = follow_step(state.view, state.width, positions(state.centred), positions(times),
                             state.axis.position(state.end()));
    state.centred = times;
}

void fit_view(TimelineState& state, const PanelContext& context) {
    if (context.ui.fit_run_requested)
        show(state, state.begin(), state.end());
    else if (context.ui.range)
        show(state, context.ui.range->start_ns, context.ui.range->end_ns);
    else if (const StepRow* step = selected_step_row(context, state.run_id); step != nullptr)
        show(state, step->start_ns, step->end_ns);
    else
        show(state, state.begin(), state.end());
    state.width = ViewWidth::chosen;
}

void clamp_view(TimelineState& state) {
    const TimeNs begin = state.axis.position(state.begin()), end = state.axis.position(state.end());
    const TimeNs whole = std::max<TimeNs>(end - begin, min_span_ns);
    TimelineView& view = state.view;
    const TimeNs margin = whole / 50 + 1;
    const TimeNs span = std::clamp(view.end - view.begin, min_span_ns, whole + 2 * margin);
    const TimeNs low = begin - margin, high = std::max(end + margin - span, low);
    view.begin = std::clamp(view.begin, low, high);
    view.end = view.begin + span;
}

void handle_keys_and_wheel(TimelineState& state, const PanelContext& context, const LaneArea& area) {
    const ImGuiIO& io = ImGui::GetIO();
    const auto span = static_cast<double>(state.view.end - state.view.begin);
    const auto pan = [&](double part) {
        state.view.begin += static_cast<TimeNs>(part * span);
        state.view.end += static_cast<TimeNs>(part * span);
        if (state.width == ViewWidth::steps) state.width = ViewWidth::chosen;
    };
    const auto zoom = [&](double factor, double at) {
        state.view = zoom_view(state.view, factor, at, min_span_ns);
        const StepRow* step = selected_step_row(context, state.run_id);
        const bool inside =
            step != nullptr && state.view.end - state.view.begin <
                                   state.axis.position(step->end_ns) - state.axis.position(step->start_ns);
        state.width = inside ? ViewWidth::part : ViewWidth::chosen;
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
    if (context.ui.fit_requested || context.ui.fit_run_requested) fit_view(state, context);
}

/// True if the left button's drag is longer than a click's. In a slow frame, the release comes with the last
/// move, which ImGui's drag distance leaves out.
bool is_drag(const ImGuiIO& io) {
    const ImVec2 start = io.MouseClickedPos[ImGuiMouseButton_Left];
    const float x = io.MousePos.x - start.x, y = io.MousePos.y - start.y;
    return std::max(io.MouseDragMaxDistanceSqr[ImGuiMouseButton_Left], x * x + y * y) >= 16;
}

/// Left drag selects a range; middle or right drag moves the view.
void handle_drags(TimelineState& state, PanelContext& context, const LaneArea& area) {
    const ImGuiIO& io = ImGui::GetIO();
    for (const ImGuiMouseButton button : {ImGuiMouseButton_Right, ImGuiMouseButton_Middle})
        if (ImGui::IsItemHovered() && ImGui::IsMouseDragging(button, 2)) {
            const double per_pixel =
                static_cast<double>(state.view.end - state.view.begin) / std::max(area.width(), 1.0f);
            const auto delta = static_cast<TimeNs>(-io.MouseDelta.x * per_pixel);
            state.view.begin += delta;
            state.view.end += delta;
            if (state.width == ViewWidth::steps) state.width = ViewWidth::chosen;
        }
    const TimeScale scale = state.scale(area);
    if (ImGui::IsItemActivated()) state.drag_from = static_cast<double>(scale.to_time(io.MousePos.x));
    const bool released = ImGui::IsItemDeactivated();
    if (!state.drag_from || !(ImGui::IsItemActive() || released)) {
        state.drag_from.reset();
        return;
    }
    const auto from = static_cast<TimeNs>(*state.drag_from);
    if (released) state.drag_from.reset();
    if (!is_drag(io)) return;
    const TimeNs to = scale.to_time(io.MousePos.x);
    if (from != to) context.ui.range = TimeRange{std::min(from, to), std::max(from, to)};
}

/// Draws marks at round times since the origin, without pauses, and the origin's name at the left.
void draw_axis(TimelineState& state, const PanelContext& context, const LaneArea& area) {
    const Style& style = context.style;
    const float size = 0.78f * style.em, gap = 0.4f * style.em;
    const TimeNs begin = state.axis.time(state.view.begin), end = state.axis.time(state.view.end);
    state.origin = axis_origin(context.snapshot, state.run_id, state.axis,
                               selected_step_row(context, state.run_id), begin, end);
    const TimeNs origin = state.origin.time;
    const TimeNs largest =
        std::max(std::abs(state.axis.busy(origin, begin)), std::abs(state.axis.busy(origin, end)));
    const std::string widest = offset_text(-largest, tick_step(state.axis.busy(begin, end), 8), largest);
    const float label = style.ui->CalcTextSizeA(size, 1e9f, 0, widest.c_str()).x + 2 * gap;
    const TimeNs step = tick_step(state.axis.busy(begin, end), static_cast<int>(area.width() / label));
    const TimeScale scale = state.scale(area);
    float free_from = area.min.x;
    area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
    for (const AxisPart& part : state.axis.parts(state.view.begin, state.view.end)) {
        const TimeNs offset = state.axis.busy(origin, part.start);
        TimeNs mark = offset / step * step;
        if (mark < offset) mark += step;
        for (; mark - offset <= part.end - part.start; mark += step) {
            const float x = scale.position_to_x(part.position + mark - offset);
            area.list->AddLine({x, area.min.y}, {x, area.max.y}, to_im(style.colours.line, 0.6f));
            const std::string text = offset_text(mark, step, largest);
            if (x < free_from) continue;
            area.list->AddText(style.ui, size, {x + 0.2f * style.em, area.min.y},
                               to_im(style.colours.text_dim), text.c_str());
            free_from = x + style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str()).x + gap;
        }
    }
    area.list->PopClipRect();
    const ImVec2 at(area.min.x - area.names, area.min.y);
    area.list->AddText(style.ui, size, at, to_im(style.colours.text_dim), state.origin.text.c_str());
}

void draw_marks(const PanelContext& context, const TimelineState& state, const LaneArea& area) {
    const Palette& c = context.style.colours;
    const StepRow* step = selected_step_row(context, state.run_id);
    const TimeScale scale = state.scale(area);
    if (step != nullptr) {
        const float x0 = scale.to_x(step->start_ns), x1 = scale.to_x(step->end_ns);
        area.list->AddRectFilled({x0, area.min.y}, {std::max(x1, x0 + 2), area.max.y},
                                 to_im(c.accent, 0.10f));
        area.list->AddLine({x0, area.min.y}, {x0, area.max.y}, to_im(c.accent, 0.8f), 1.5f);
        area.list->AddLine({x1, area.min.y}, {x1, area.max.y}, to_im(c.accent, 0.8f), 1.5f);
    }
    if (!context.ui.range) return;
    const float x0 = scale.to_x(context.ui.range->start_ns), x1 = scale.to_x(context.ui.range->end_ns);
    area.list->AddRectFilled({x0, area.min.y}, {x1, area.max.y}, to_im(c.warn, 0.12f));
    for (const float x : {x0, x1}) area.list->AddLine({x, area.min.y}, {x, area.max.y}, to_im(c.warn), 1.5f);
}

/// Draws the range's length and effect, with a button that clears it.
void draw_range_label(PanelContext& context, const TimelineState& state, const LaneArea& area) {
    if (!context.ui.range) return;
    const Style& style = context.style;
    const TimeRange range = *context.ui.range;
    const TimeNs held = state.axis.paused(range.start_ns, range.end_ns);
    std::string text = duration_text(range.end_ns - range.start_ns - held);
    if (held > 0) text += fmt::format(" (without {} of pauses)", duration_text(held));
    const float button = ImGui::GetFrameHeight(), gap = 0.3f * style.em;
    const auto width_of = [&](const std::string& label) {
        return button + ImGui::CalcTextSize(label.c_str()).x + 2 * gap;
    };
    const std::string whole = text + ": tables and plots count only this range";
    if (width_of(whole) <= area.width()) text = whole;
    const float width = width_of(text);
    const float wanted = state.scale(area).to_x(range.start_ns) + gap;
    const ImVec2 at(std::max(std::min(wanted, area.max.x - width), area.min.x),
                    area.max.y - ImGui::GetTextLineHeightWithSpacing());
    area.list->AddRectFilled({at.x - gap, at.y - 1}, {at.x + width, at.y + ImGui::GetTextLineHeight() + 2},
                             to_im(style.colours.panel, 0.85f), 2);
    const ImVec2 after = ImGui::GetCursorScreenPos();
    ImGui::SetCursorScreenPos(at);
    if (ImGui::SmallButton("x##leave_range")) context.ui.range.reset();
    show_tooltip(style, "Tables and plots count only this range. Click to show the whole run again (Esc).");
    ImGui::SameLine(0, gap);
    ImGui::TextUnformatted(text.c_str());
    ImGui::SetCursorScreenPos(after);
    ImGui::Dummy({0, 0});
}

/// A recorded lane and the same lane of the round in flight.
struct SharedLane {
    const TimelineLane* recorded = nullptr;
    const TimelineLane* flight = nullptr;
    const TimelineLane& any() const { return recorded != nullptr ? *recorded : *flight; }
    std::size_t rows() const {
        return std::max(recorded != nullptr ? recorded->rows.size() : 0,
                        flight != nullptr ? flight->rows.size() : 0);
    }
};

std::vector<SharedLane> shared_lanes(const TimelineState& state) {
    std::vector<SharedLane> lanes;
    for (const TimelineLane& lane : state.recorded->lanes) lanes.push_back({&lane, nullptr});
    const auto place = [](const TimelineLane& lane) { return std::tuple(lane.kind, lane.key, lane.sub_key); };
    for (const TimelineLane& lane : state.flight->lanes) {
        const auto at = std::find_if(lanes.begin(), lanes.end(), [&](const SharedLane& other) {
            return place(other.any()) >= place(lane);
        });
        if (at != lanes.end() && place(at->any()) == place(lane))
            at->flight = &lane;
        else
            lanes.insert(at, {nullptr, &lane});
    }
    return lanes;
}

float lanes_height(const std::vector<SharedLane>& lanes, float row, float em) {
    float height = 1.25f * em;
    for (const SharedLane& lane : lanes) height += static_cast<float>(lane.rows()) * row + 0.45f * em;
    return height;
}

/// Draws a lane's name at its left, and `nested` at its second row.
void draw_lane_names(const LaneArea& area, const Style& style, const char* name, const char* nested,
                     std::size_t rows, float y) {
    const float size = 0.8f * style.em, top = y + (area.row - size) / 2 - 1, left = area.min.x - area.names;
    const ImU32 colour = to_im(style.colours.text_dim);
    area.list->AddText(style.ui, size, {left, top}, colour, name);
    if (rows > 1)
        area.list->AddText(style.ui, size, {left + 0.8f * style.em, top + area.row}, colour, nested);
}

/// Returns a lane's name. `imported`: another program's threads have no names.
std::string lane_name(const TimelineLane& lane, bool imported) {
    if (lane.kind == LaneKind::steps || lane.kind == LaneKind::levels) return group_name(lane.kind);
    if (lane.kind != LaneKind::cpu) return fmt::format("{} {}", group_name(lane.kind), lane.name);
    return imported ? fmt::format("thread {}", lane.sub_key) : lane.name;
}

/// Draws lanes below each other, from `y` on, which then is below them. `recorded`: the capture of the lanes,
/// ours or the imported one.
std::optional<LaneHover> draw_lanes(const PanelContext& context, TimelineState& state, const LaneArea& area,
                                    const Snapshot& recorded, const std::vector<SharedLane>& lanes,
                                    float& y) {
    const Style& style = context.style;
    const bool imported = &recorded == state.overlay_snapshot;
    const TimeScale scale = state.scale(area, imported ? state.overlay_shift : 0);
    std::optional<LaneHover> hover;
    const auto part = [&](const TimelineLane* lane, const TimelineLane* steps, const Snapshot& snapshot,
                          std::size_t depth) {
        if (lane == nullptr || depth >= lane->rows.size() || y >= area.max.y) return;
        if (const auto at = draw_lane_row(scale, style, snapshot, *lane, lane->rows[depth], y, state.blocks))
            hover = at;
        const bool critical = lane->kind == LaneKind::cpu && lane->key == 0 && depth == 0 && !imported;
        if (critical && steps != nullptr && steps->kind == LaneKind::steps)
            draw_gaps(scale, style, *lane, steps->rows.front(), y);
    };
    for (const SharedLane& lane : lanes) {
        const bool ours = lane.any().kind == LaneKind::cpu && !imported;
        draw_lane_names(area, style, lane_name(lane.any(), imported).c_str(), ours ? "sub-phases" : "nested",
                        lane.rows(), y);
        area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
        for (std::size_t depth = 0; depth < lane.rows(); ++depth) {
            part(lane.recorded, lanes.front().recorded, recorded, depth);
            if (lane.flight != nullptr)
                part(lane.flight, lanes.front().flight, *context.snapshot.in_flight, depth);
            y += area.row;
        }
        area.list->PopClipRect();
        y += 0.45f * style.em;
    }
    return hover;
}

/// Draws our lanes with the folds over them.
std::optional<LaneHover> draw_own_lanes(const PanelContext& context, TimelineState& state,
                                        const LaneArea& area, const std::vector<SharedLane>& lanes) {
    const Style& style = context.style;
    float top = area.min.y + 1.25f * style.em, y = top;
    const auto hover = draw_lanes(context, state, area, context.snapshot, lanes, y);
    area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
    // The steps lie above the folds, so that their labels stay readable.
    if (lanes.front().any().kind == LaneKind::steps) top += area.row + 0.45f * style.em;
    draw_folds(state.scale(area), style, top, y - 0.45f * style.em);
    area.list->PopClipRect();
    return hover;
}

/// Returns the time shift that aligns the other timeline's step with the selected step of the same number.
/// Without steps it aligns the starts.
TimeNs overlay_shift(const TimelineState& state, const PanelContext& context, const Snapshot& other) {
    const StepRow* step = selected_step_row(context, state.run_id);
    if (step == nullptr || other.steps.empty()) return state.overlay->begin - state.begin();
    const auto last = static_cast<int>(other.steps.size()) - 1;
    return other.steps[std::clamp(step->ordinal, 0, last)].row.start_ns - step->start_ns;
}

void update_overlay(TimelineState& state, const PanelContext& context) {
    const Snapshot* other = context.status.overlay.get();
    if (other != state.overlay_snapshot) {
        state.overlay_snapshot = other;
        const bool imported = other != nullptr && !other->runs.empty();
        state.overlay = imported ? run_lanes(*other, other->runs.front().id) : no_lanes;
    }
    if (other != nullptr) state.overlay_shift = overlay_shift(state, context, *other);
}

/// Draws the imported timeline's lanes below ours, on the same time scale.
std::optional<LaneHover> draw_overlay(const PanelContext& context, TimelineState& state, const LaneArea& area,
                                      float y) {
    if (state.overlay->empty()) return std::nullopt;
    const Style& style = context.style;
    const float size = 0.8f * style.em;
    area.list->AddLine({area.min.x - area.names, y}, {area.max.x, y}, to_im(style.colours.line));
    y += 0.3f * style.em;
    const std::string title = fmt::format("imported timeline: {}", state.overlay_snapshot->runs.front().name);
    area.list->AddText(style.ui, size, {area.min.x, y}, to_im(style.colours.text_dim), title.c_str());
    y += 1.2f * style.em;
    std::vector<SharedLane> lanes;
    for (const TimelineLane& lane : state.overlay->lanes)
        if (lane.kind != LaneKind::levels) lanes.push_back({&lane, nullptr});  // not of other engines' ranges
    return draw_lanes(context, state, area, *state.overlay_snapshot, lanes, y);
}

void show_interval_tooltip(const PanelContext& context, const TimelineState& state, const LaneHover& hover) {
    if (!ImGui::BeginTooltip()) return;
    const bool ours = hover.snapshot != state.overlay_snapshot;
    const std::vector<std::string> lines =
        describe_interval(*hover.snapshot, *hover.lane, *hover.row, hover.index,
                          ours ? state.axis : FoldedAxis(), ours ? state.origin : AxisOrigin());
    draw_in_font(context.style.ui_bold, lines.front());
    for (std::size_t i = 1; i < lines.size(); ++i) ImGui::TextUnformatted(lines[i].c_str());
    if (hover.merged > 1)
        ImGui::TextDisabled("one of %u intervals in this pixel: zoom in to separate them", hover.merged);
    ImGui::EndTooltip();
}

/// Shows a tooltip for the axis' origin, a fold or an interval under the mouse.
void show_hover_tooltip(const PanelContext& context, const TimelineState& state, const LaneArea& area,
                        const std::optional<LaneHover>& hover) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (!ImGui::IsItemHovered() || ImGui::IsMouseDown(ImGuiMouseButton_Left)) return;
    if (mouse.x < area.min.x && mouse.y < area.min.y + 1.25f * context.style.em) {
        ImGui::SetTooltip("%s", state.origin.long_text.c_str());
        return;
    }
    const Fold* fold =
        mouse.x < area.min.x ? nullptr : state.axis.fold_at(state.scale(area).to_time(mouse.x));
    if (fold != nullptr)
        ImGui::SetTooltip("paused for %s\nfolded: not part of axis times and statistics",
                          duration_text(fold->length()).c_str());
    else if (hover)
        show_interval_tooltip(context, state, *hover);
}

/// Clears the range and selects the round under the mouse on a click.
void select_on_click(PanelContext& context, TimelineState& state, const std::optional<LaneHover>& hover) {
    const ImGuiIO& io = ImGui::GetIO();
    if (!ImGui::IsItemHovered() || !ImGui::IsMouseReleased(ImGuiMouseButton_Left) || is_drag(io)) return;
    context.ui.range.reset();
    if (!hover) return;
    if (hover->snapshot == context.snapshot.in_flight.get()) {
        context.ui.select_in_flight();
    } else if (hover->snapshot != &context.snapshot) {
        return;
    } else if (const auto round =
                   round_of_interval(context.snapshot, *hover->lane, *hover->row, hover->index)) {
        context.ui.select_round(*round, context.snapshot.rounds.size());
    }
    if (const StepRow* step = selected_step_row(context, state.run_id); step != nullptr)
        state.centred = {step->start_ns, step->end_ns};  // already in view: the view stays
}

void update(TimelineState& state, const PanelContext& context) {
    if (state.data_key != context.ui.data_key || state.run_id != context.ui.run_id) {
        state.recorded = run_lanes(context.snapshot, context.ui.run_id);
        const Snapshot* flight = round_in_flight(context.snapshot, context.ui);
        state.flight = flight != nullptr ? run_lanes(*flight, context.ui.run_id) : no_lanes;
        state.axis.update(context.snapshot, context.ui.run_id);
        state.data_key = context.ui.data_key;
        state.run_id = context.ui.run_id;
    }
    update_overlay(state, context);
}

}  // namespace

void draw_timeline(PanelContext& context) {
    TimelineState& state = context.panel_state.get<TimelineState>();
    const Style& style = context.style;
    const bool changed = state.run_id != context.ui.run_id || state.empty();
    update(state, context);
    if (state.empty())
        return draw_empty_text(style, context.snapshot.runs.empty()
                                          ? "No run yet. Each phase of a round appears here as a bar."
                                      : context.snapshot.runs.back().acceptance == imported_acceptance
                                          ? "The imported file has no times of the rounds."
                                          : "No phases were recorded in this run.");
    if (const char* missing = missing_in_lanes(context.snapshot, state.run_id); *missing != '\0')
        ImGui::TextDisabled("%s", missing);
    const std::vector<SharedLane> lanes = shared_lanes(state);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    LaneArea area;
    area.row = 1.35f * style.em;
    const auto needed = [&](float row) {
        float height = lanes_height(lanes, row, style.em);
        if (state.overlay->empty()) return height;
        height += 1.5f * style.em + 1.25f * style.em;
        for (const TimelineLane& lane : state.overlay->lanes)
            height += static_cast<float>(lane.rows.size()) * row + 0.45f * style.em;
        return height;
    };
    const float min_lanes_height = needed(area.row);
    const float table = std::min(room.y - min_lanes_height - style.em, round_phases_height(style));
    const std::optional<SelectedStep> step = selected_step(context, state.run_id);
    const bool with_table = table > 5 * style.em && step.has_value();
    const float lanes_room = room.y - (with_table ? table + style.em : 0);
    area.row =
        std::clamp(area.row * lanes_room / std::max(min_lanes_height, 1.0f), area.row, 2.4f * style.em);
    area.names = 5.4f * style.em;
    const float height = std::max(lanes_room, needed(area.row));
    const ImVec2 start = ImGui::GetCursorScreenPos();
    area.min = {start.x + area.names, start.y};
    area.max = {start.x + std::max(room.x, area.names + 4 * style.em), start.y + height};
    area.list = ImGui::GetWindowDrawList();
    // For the range's button. Items that allow overlap miss a press in the frame in which the mouse arrives.
    if (context.ui.range) ImGui::SetNextItemAllowOverlap();
    ImGui::InvisibleButton("lanes", {area.max.x - start.x, height});
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    state.view.columns = std::max(static_cast<int>(area.width()), 1);
    follow_round(state, context, changed);
    handle_keys_and_wheel(state, context, area);
    handle_drags(state, context, area);
    clamp_view(state);
    draw_axis(state, context, area);
    std::optional<LaneHover> hover = draw_own_lanes(context, state, area, lanes);
    const float below = area.min.y + lanes_height(lanes, area.row, style.em);
    if (const auto other = draw_overlay(context, state, area, below)) hover = other;
    area.list->PushClipRect({area.min.x, area.min.y}, area.max, true);
    draw_marks(context, state, area);
    area.list->PopClipRect();
    show_hover_tooltip(context, state, area, hover);
    select_on_click(context, state, hover);
    draw_range_label(context, state, area);
    if (with_table) draw_round_phases(context, *step->snapshot, step->index, {room.x, table});
}

}  // namespace draftscope
