#include "app/gui/models/rounds.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "app/gui/models/cached_model.h"
#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "base/bisect.h"
#include "base/format_count.h"
#include "base/phase_names.h"
#include "capture/queries.h"
#include "capture/run_setting.h"

/// Rounds panel: one cell per round, and histograms of acceptance.
namespace draftscope {
namespace {

constexpr float cursor_room = 0.85f;  ///< below the cells, in text sizes
constexpr float overview_height = 1.3f;

struct RoundsState {
    std::uint64_t data_key = 0;
    RoundsModel model;
    std::optional<RoundCell> in_flight;
    AcceptanceModel acceptance;
    CachedModel<std::vector<OverviewColumn>, std::tuple<std::uint64_t, RowId, std::size_t>>
        overview;  ///< by data, run and number of columns
    std::optional<TimeRange> range;
    std::optional<std::size_t> shown;

    std::size_t cells() const { return model.cells.size() + (in_flight ? 1 : 0); }
    int columns() const { return model.columns + (in_flight ? 1 : 0); }
    bool is_batch() const { return model.rows.size() > 1; }
    const RoundCell& cell(std::size_t i) const {
        return i < model.cells.size() ? model.cells[i] : *in_flight;
    }
    int tallest() const { return std::max(model.tallest, in_flight ? in_flight->depth : 0); }
};

void rebuild(PanelContext& c, RoundsState& state) {
    const bool stale = state.data_key != c.ui.data_key || state.model.run_id != c.ui.run_id;
    if (stale) {
        update_rounds(state.model, c.snapshot, c.ui.run_id);
        state.in_flight = cell_in_flight(state.model, c.snapshot, c.ui);
        state.data_key = c.ui.data_key;
    }
    if (stale || state.range != c.ui.range) {
        state.acceptance = build_acceptance(state.model, c.snapshot, c.ui.range);
        state.range = c.ui.range;
    }
}

struct Strip {
    ImVec2 min;          ///< top left of the cells' area on screen
    float cell, height;  ///< cell pitch; height of a row
    float unit;          ///< height of one accepted token

    ImVec2 place(const RoundCell& of) const {
        return {min.x + cell * static_cast<float>(of.column), min.y + height * static_cast<float>(of.row)};
    }
};

void draw_cell(const Style& style, const RoundCell& cell, const Strip& strip, bool batch, bool selected,
               bool hovered) {
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float gap = strip.cell >= 5 ? std::max(1.0f, strip.cell * 0.14f) : 0;
    const auto [x, top] = strip.place(cell);
    const float bottom = top + strip.height - (batch ? 2 : 0);
    const float width = std::max(strip.cell - gap, 1.0f);
    const ImVec2 slot_min(
        x, bottom - strip.unit * (static_cast<float>(std::max(cell.depth, cell.accepted)) + 0.35f));
    list->AddRectFilled(slot_min, ImVec2(x + width, bottom), to_im(style.colours.raised, 0.75f));
    const ImVec2 min(x, bottom - strip.unit * (static_cast<float>(cell.accepted) + 0.35f)),
        max(x + width, bottom);
    list->AddRectFilled(min, max, style.phase(cell.dominant_phase));
    const bool uncounted = cell.excluded != Excluded::no && cell.excluded != Excluded::untimed;
    if (uncounted || cell.dominant_phase == remainder_phase_id)
        draw_hatching(list, min, max, to_im(style.colours.panel, 0.7f), 5.0f);
    if (cell.first_of_prompt && strip.cell >= 3)
        list->AddRectFilled(ImVec2(x - gap, top), ImVec2(x - gap + 1, bottom), to_im(style.colours.line));
    if (hovered)
        list->AddRect(ImVec2(x - 1, top), ImVec2(x + width + 1, bottom), to_im(style.colours.text_dim));
    if (!selected) return;
    const float centre = x + width / 2, tip = style.em * 0.42f;
    list->AddRect(ImVec2(x - 2, top), ImVec2(x + width + 2, bottom + 1), to_im(style.colours.accent), 2.0f,
                  2.0f);
    if (batch) return;  // the next row is below
    list->AddTriangleFilled(ImVec2(centre - tip, bottom + tip * 1.7f),
                            ImVec2(centre + tip, bottom + tip * 1.7f), ImVec2(centre, bottom + tip * 0.3f),
                            to_im(style.colours.accent));
}

/// Draws the marks of a round's notes: a dot for a breakpoint, a flag for a bookmark.
void draw_notes(const Style& style, const RoundNotes& notes, float x, float y, float size) {
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (notes.bookmark) {
        list->AddRectFilled({x - size, y}, {x + size, y + 1.5f * size}, to_im(style.colours.accent));
        for (const float side : {-size, size})
            list->AddTriangleFilled({x + side, y + 1.5f * size}, {x + side, y + 2.6f * size},
                                    {x, y + 1.5f * size}, to_im(style.colours.accent));
        y += 3 * size;
    }
    if (!notes.breakpoint.empty()) list->AddCircleFilled({x, y + size}, size, to_im(style.colours.bad));
}

/// Returns a cell's tooltip with the notes of its round.
std::string describe_cell(const RoundsModel& model, const RoundCell& cell) {
    const std::string text = describe_round(cell);
    const RoundNotes* notes = find_notes(model.notes, cell.index);
    return notes == nullptr ? text : text + "\n" + describe_notes(*notes);
}

/// Scrolls to the selected cell when the selection changed.
void scroll_to_selected(RoundsState& state, std::size_t selected, float cell, float room) {
    if (state.shown == selected) return;
    state.shown = selected;
    const float x = static_cast<float>(state.cell(selected).column) * cell;
    if (x < ImGui::GetScrollX() || x + cell > ImGui::GetScrollX() + room) ImGui::SetScrollX(x - room * 0.8f);
}

void draw_phase_legend(const Style& style, const RoundsState& state) {
    std::array<bool, max_phases> used{};
    bool excluded = false;
    for (std::size_t i = 0; i < state.cells(); ++i) {
        const RoundCell& cell = state.cell(i);
        used[cell.dominant_phase] = true;
        excluded |= cell.excluded != Excluded::no && cell.excluded != Excluded::untimed;
    }
    ImGui::TextDisabled("%sheight: accepted / drafted depth   colour: longest phase",
                        state.is_batch() ? "row: sequence   column: step   " : "");
    for (const PhaseRow& phase : phase_rows) {
        if (!used[phase.id]) continue;
        ImGui::SameLine(0, style.em * 0.9f);
        draw_legend_entry(style, style.phase(phase.id), phase.id == 0 ? "no spans" : phase.name.data());
    }
    if (!excluded) return;
    ImGui::SameLine(0, style.em * 0.9f);
    draw_cut_text("hatched: time not counted", 0, style.colours.text_dim);
    show_tooltip(style, "Warm-up and paused rounds count for acceptance, but not for times.");
}

/// Returns the geometry of the cells, shared by the scale at the left and the strip.
Strip make_strip(const Style& style, const RoundsState& state, ImVec2 min, float room, float height,
                 bool has_overview) {
    const auto count = static_cast<float>(state.columns());
    const float pitch = std::clamp(std::floor(room / std::max(count, 1.0f)), std::floor(style.em * 0.55f),
                                   std::floor(style.em * 1.6f));
    const bool scrolls = pitch * count > room && !has_overview;
    const float cells = std::max(
        height - style.em * cursor_room - (scrolls ? ImGui::GetStyle().ScrollbarSize : 0), style.em * 0.5f);
    const float rows = std::max(static_cast<float>(state.model.rows.size()), 1.0f);
    const float row = state.is_batch() ? std::max(cells / rows, 0.6f * style.em) : cells;
    return {min, pitch, row, row / (static_cast<float>(state.tallest()) + 0.6f)};
}

/// Draws the scale of accepted tokens and its grid lines.
void draw_scale(const Style& style, int tallest, const Strip& strip, float room) {
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float bottom = strip.min.y + strip.height, x = strip.min.x - style.em * 0.4f;
    const int every = strip.unit >= ImGui::GetTextLineHeight() ? 1 : std::max(tallest, 1);
    for (int count = 0; count <= tallest; ++count) {
        const float y = bottom - strip.unit * (static_cast<float>(count) + 0.35f);
        list->AddLine(ImVec2(strip.min.x, y), ImVec2(strip.min.x + room, y),
                      to_im(style.colours.line, 0.45f));
        if (count % every != 0) continue;
        const std::string text = fmt::format("{}", count);
        const ImVec2 size = ImGui::CalcTextSize(text.c_str());
        list->AddText(ImVec2(x - size.x, y - size.y / 2), to_im(style.colours.text_dim), text.c_str());
    }
}

void draw_strip(PanelContext& c, RoundsState& state, const Strip& wanted, float room) {
    const std::size_t count = state.cells();
    Strip strip = wanted;
    strip.min = ImGui::GetCursorScreenPos();
    const float pitch = strip.cell;
    const bool under_way = in_flight_selected(c.snapshot, c.ui) && state.in_flight.has_value();
    const std::size_t selected = under_way    ? count - 1
                                 : c.ui.round ? state.model.find_cell(*c.ui.round)
                                              : count;
    const float rows = std::max(static_cast<float>(state.model.rows.size()), 1.0f);
    ImGui::InvisibleButton("##cells", ImVec2(std::max(pitch * static_cast<float>(state.columns()), 1.0f),
                                             rows * strip.height + c.style.em * cursor_room));
    const bool over = ImGui::IsItemHovered(), held = ImGui::IsItemActive();
    const ImVec2 mouse = ImGui::GetMousePos();
    const auto under = static_cast<int>(std::floor((mouse.x - strip.min.x) / pitch));
    const auto under_row =
        static_cast<int>(std::clamp((mouse.y - strip.min.y) / strip.height, 0.0f, rows - 1));
    const int first = static_cast<int>(ImGui::GetScrollX() / pitch) - 1;
    const int last = first + static_cast<int>(room / pitch) + 4;
    std::optional<std::size_t> hovered;
    std::size_t i = bisect(0, count, [&](std::size_t k) { return state.cell(k).column < first; });
    for (; i < count && state.cell(i).column < last; ++i) {
        const RoundCell& cell = state.cell(i);
        const bool at = cell.column == under && cell.row == under_row;
        if (at) hovered = i;
        draw_cell(c.style, cell, strip, state.is_batch(), i == selected, over && at);
    }
    for (const RoundNotes& notes : state.model.notes) {
        const RoundCell& cell = state.cell(state.model.find_cell(notes.round));
        const ImVec2 at = strip.place(cell);
        if (cell.column >= first && cell.column < last)
            draw_notes(c.style, notes, at.x + 0.43f * pitch, at.y, std::min(0.3f * c.style.em, 0.4f * pitch));
    }
    const bool on_flight = hovered == state.model.cells.size();
    if (hovered && over)
        ImGui::SetTooltip("%s", on_flight
                                    ? describe_in_flight(*state.in_flight, *c.snapshot.in_flight).c_str()
                                    : describe_cell(state.model, state.cell(*hovered)).c_str());
    if (hovered && held) {
        state.shown = hovered;
        if (on_flight)
            c.ui.select_in_flight();
        else
            c.ui.select_round(state.cell(*hovered).index, c.snapshot.rounds.size());
    }
    if (ImGui::IsItemFocused()) {
        if (ImGui::IsKeyPressed(ImGuiKey_LeftArrow)) step_selection(c.snapshot, c.ui, -1);
        if (ImGui::IsKeyPressed(ImGuiKey_RightArrow)) step_selection(c.snapshot, c.ui, 1);
    }
    if (selected < count) scroll_to_selected(state, selected, pitch, room);
}

/// Draws the whole run in the width of the strip: accepted tokens as bars, slow steps as marks above them,
/// and what the strip shows as a frame. A click selects the slowest round of a column.
void draw_overview(PanelContext& c, RoundsState& state, float width, float first_shown, float shown) {
    const Style& style = c.style;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float height = overview_height * style.em, bar = 3;
    ImGui::InvisibleButton("##overview", {width, height});
    const auto wanted = static_cast<std::size_t>(width / bar);
    const auto& columns = state.overview.get({state.data_key, state.model.run_id, wanted},
                                             [&] { return build_overview(state.model, wanted); });
    if (columns.empty()) return;
    const float pitch = width / static_cast<float>(columns.size());
    TimeNs slowest = 1;
    for (const OverviewColumn& column : columns) slowest = std::max(slowest, column.slowest_ns);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(at, {at.x + width, at.y + height}, to_im(style.colours.raised, 0.5f));
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const float x = at.x + pitch * static_cast<float>(i);
        const auto accepted = static_cast<float>(columns[i].accepted / std::max(state.tallest(), 1));
        list->AddRectFilled({x, at.y + height * (1 - 0.75f * accepted)}, {x + pitch - 1, at.y + height},
                            to_im(style.colours.good, 0.8f));
        if (2 * columns[i].slowest_ns > slowest)  // more than half of the longest step
            list->AddRectFilled({x, at.y}, {x + pitch - 1, at.y + 0.2f * height}, to_im(style.colours.bad));
    }
    for (const RoundNotes& notes : state.model.notes)
        draw_notes(style, notes,
                   at.x + width * (static_cast<float>(state.model.find_cell(notes.round)) + 0.5f) /
                              static_cast<float>(state.model.cells.size()),
                   at.y, 0.2f * style.em);
    list->AddRect({at.x + width * first_shown, at.y},
                  {at.x + width * std::min(first_shown + shown, 1.0f), at.y + height},
                  to_im(style.colours.accent));
    const float mouse = ImGui::GetMousePos().x - at.x;
    const auto under =
        static_cast<std::size_t>(std::clamp(mouse / pitch, 0.0f, static_cast<float>(columns.size() - 1)));
    const RoundCell& cell = state.model.cells[columns[under].slowest];
    if (ImGui::IsItemHovered())
        ImGui::SetTooltip(
            "%s", fmt::format("{} from round {}: {:.2f} accepted; the slowest: {}",
                              format_count(static_cast<std::int64_t>(columns[under].count), "round"),
                              state.model.cells[columns[under].first].ordinal, columns[under].accepted,
                              describe_round(cell))
                      .c_str());
    if (ImGui::IsItemActive()) c.ui.select_round(cell.index, c.snapshot.rounds.size());
}

void draw_cells(PanelContext& c, RoundsState& state) {
    draw_phase_legend(c.style, state);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImVec2 space = ImGui::GetContentRegionAvail();
    const float scale = c.style.em * 1.5f;
    // A run that does not fit has an overview instead of a scroll bar.
    const float least = std::floor(c.style.em * 0.55f) * static_cast<float>(state.columns());
    const float overview = overview_height * c.style.em + ImGui::GetStyle().ItemSpacing.y;
    const bool has_overview = least > space.x - scale && space.y > 2.5f * overview;
    if (has_overview) space.y -= overview;
    const Strip strip =
        make_strip(c.style, state, ImVec2(at.x + scale, at.y), space.x - scale, space.y, has_overview);
    if (!state.is_batch()) draw_scale(c.style, state.tallest(), strip, space.x - scale);
    ImGui::SetCursorScreenPos(strip.min);
    float first_shown = 0;
    if (ImGui::BeginChild(
            "##strip", ImVec2(0, has_overview ? space.y : 0), 0,
            ImGuiWindowFlags_HorizontalScrollbar | (has_overview ? ImGuiWindowFlags_NoScrollbar : 0))) {
        draw_strip(c, state, strip, space.x - scale);
        first_shown = ImGui::GetScrollX() / std::max(least, 1.0f);
    }
    ImGui::EndChild();
    if (!has_overview) return;
    ImGui::SetCursorScreenPos({strip.min.x, ImGui::GetCursorScreenPos().y});
    draw_overview(c, state, space.x - scale, first_shown, (space.x - scale) / least);
}

/// Draws one labelled bar of a small chart: "3 ████ 41 %".
void draw_bar(const Style& style, const std::string& name, double share, const std::string& value,
              ImU32 colour) {
    const float name_width = style.em * 1.7f;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float height = ImGui::GetTextLineHeight();
    const float value_width = style.em * 3.2f;
    const float room = std::max(ImGui::GetContentRegionAvail().x - name_width - value_width, style.em);
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 name_size = ImGui::CalcTextSize(name.c_str());
    list->AddText(ImVec2(at.x + name_width - name_size.x - style.em * 0.5f, at.y),
                  to_im(style.colours.text_dim), name.c_str());
    const ImVec2 min(at.x + name_width, at.y + height * 0.16f);
    list->AddRectFilled(min, ImVec2(min.x + room, at.y + height * 0.88f), to_im(style.colours.raised, 0.75f),
                        2);
    if (share > 0)
        list->AddRectFilled(
            min, ImVec2(min.x + std::max(room * static_cast<float>(share), 1.0f), at.y + height * 0.88f),
            colour, 2);
    list->AddText(ImVec2(min.x + room + style.em * 0.5f, at.y), to_im(style.colours.text), value.c_str());
    ImGui::Dummy(ImVec2(ImGui::GetContentRegionAvail().x, height));
}

void draw_histogram(const Style& style, const AcceptanceModel& model, bool in_range) {
    draw_hint(style, in_range ? "Tokens accepted per round, in the range" : "Tokens accepted per round");
    if (model.rounds == 0) return draw_hint(style, no_rounds_text(in_range));
    std::int64_t max_count = 1;
    for (std::int64_t count : model.histogram) max_count = std::max(max_count, count);
    const auto rounds = static_cast<double>(model.rounds);
    for (std::size_t i = 0; i < model.histogram.size(); ++i) {
        const auto count = static_cast<double>(model.histogram[i]);
        draw_bar(style, fmt::format("{}", i), count / static_cast<double>(max_count),
                 fmt::format("{:.0f} %", 100 * count / rounds), to_im(style.colours.accent));
        show_tooltip(style, fmt::format("{} of {}: accepted {}", model.histogram[i],
                                        format_count(model.rounds, "round"),
                                        format_count(static_cast<std::int64_t>(i), "draft token")));
    }
}

void draw_depths(const Style& style, const AcceptanceModel& model, bool in_range) {
    draw_hint(style, in_range ? "Acceptance by depth, in the range" : "Acceptance by depth");
    show_tooltip(style,
                 "Share of the rounds that accepted a token at a depth, of those that reached it. Rounds cut "
                 "off by the end of the output do not count.");
    if (model.rounds == 0) return draw_hint(style, no_rounds_text(in_range));
    if (std::ranges::all_of(model.depths, [](const DepthAcceptance& one) { return one.reached == 0; }))
        return draw_hint(style, "How many tokens were drafted is not known.");
    for (std::size_t i = 0; i < model.depths.size(); ++i) {
        const DepthAcceptance& depth = model.depths[i];
        draw_bar(style, fmt::format("{}", i + 1), depth.rate(),
                 depth.reached == 0 ? "-" : fmt::format("{:.0f} %", 100 * depth.rate()),
                 to_im(style.colours.good));
        show_tooltip(style, fmt::format("{} of {} that reached depth {} accepted a token at it",
                                        depth.accepted, format_count(depth.reached, "round"), i + 1));
    }
}

}  // namespace

void draw_rounds(PanelContext& c) {
    auto& state = c.panel_state.get<RoundsState>();
    rebuild(c, state);
    if (state.cells() == 0) {
        const RunRow* run = c.snapshot.run(c.ui.run_id);
        const bool sums = run != nullptr && run->acceptance == imported_acceptance;
        draw_empty_text(
            c.style,
            sums ? "The imported file has sums, not single rounds."
                 : "Each round appears here as a cell. Its height is the number of accepted tokens, its "
                   "colour the longest phase.");
        return;
    }
    const float side = c.style.em * 13;
    const bool charts = ImGui::GetContentRegionAvail().x > side * 4;
    const float gap = c.style.em;
    const float strip_width = charts ? ImGui::GetContentRegionAvail().x - 2 * (side + gap) : 0;
    ImGui::BeginGroup();
    if (ImGui::BeginChild("##left", ImVec2(strip_width, 0))) draw_cells(c, state);
    ImGui::EndChild();
    ImGui::EndGroup();
    if (!charts) return;
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing,
                        ImVec2(ImGui::GetStyle().ItemSpacing.x, c.style.em * 0.22f));
    ImGui::SameLine(0, gap);
    if (ImGui::BeginChild("##histogram", ImVec2(side, 0)))
        draw_histogram(c.style, state.acceptance, c.ui.range.has_value());
    ImGui::EndChild();
    ImGui::SameLine(0, gap);
    if (ImGui::BeginChild("##depths", ImVec2(side, 0)))
        draw_depths(c.style, state.acceptance, c.ui.range.has_value());
    ImGui::EndChild();
    ImGui::PopStyleVar();
}

}  // namespace draftscope
