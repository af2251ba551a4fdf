#include "app/gui/models/compare.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "stats/compare.h"

namespace draftscope {
namespace {

struct CompareState {
    std::optional<CompareSide> a, b;
    bool force = false;
    std::optional<CompareChoice> requested;  ///< the last requested comparison
};

CompareSide to_side(const CompareRun& run) {
    return {run.source, run.run_id};
}

const CompareRun* find(const std::vector<CompareRun>& runs, const std::optional<CompareSide>& side) {
    const auto found =
        std::ranges::find_if(runs, [&](const CompareRun& run) { return side == to_side(run); });
    return found == runs.end() ? nullptr : &*found;
}

/// Keeps the chosen runs while they exist; otherwise chooses a new pair. `newest`: the shown capture's newest
/// run, and its baseline as A.
void keep_or_choose_pair(CompareState& state, const std::vector<CompareRun>& all, bool newest) {
    if (!newest && find(all, state.a) != nullptr && find(all, state.b) != nullptr) return;
    const CompareState before = std::exchange(state, {});
    if (newest && !all.empty()) {
        for (const CompareRun& run : all)
            if (run.source == all.front().source) (run.baseline ? state.a : state.b) = to_side(run);
    } else if (const auto pair = first_pair(all)) {
        state.a = to_side(all[pair->first]);
        state.b = to_side(all[pair->second]);
    }
    if (state.a == before.a && state.b == before.b) state = before;
}

void choose(PanelContext& c, CompareState& state, const std::vector<CompareRun>& runs) {
    const auto combo = [&](const char* id, std::optional<CompareSide>& side, float width) {
        const CompareRun* chosen = find(runs, side);
        ImGui::SetNextItemWidth(width);
        if (!ImGui::BeginCombo(id, chosen == nullptr ? "choose a run" : chosen->label.c_str())) return;
        for (const CompareRun& run : runs) {
            ImGui::PushID(&run);
            if (ImGui::Selectable(run.label.c_str(), &run == chosen)) {
                side = to_side(run);
                state.force = false;
                c.ui.compare_newest = false;
            }
            ImGui::PopID();
        }
        ImGui::EndCombo();
    };
    // In a narrow panel the buttons are on a second line.
    const float room = ImGui::GetContentRegionAvail().x;
    const bool one_line = room > 34 * c.style.em;
    const float buttons = one_line ? 11.5f * c.style.em : 0.8f * c.style.em;
    const float width = std::max(8 * c.style.em, (room - buttons) / 2);
    combo("##a", state.a, width);
    show_tooltip(c.style, "A: the reference run");
    ImGui::SameLine();
    combo("##b", state.b, width);
    show_tooltip(c.style, "B: the run compared with A");
    if (one_line) ImGui::SameLine();
    if (ImGui::Button("Swap##compare")) {
        std::swap(state.a, state.b);
        c.ui.compare_newest = false;
    }
    ImGui::SameLine();
    if (ImGui::Button("Add capture...")) c.ui.open_other_requested = true;
    show_tooltip(c.style, "Opens a second capture to compare its runs with those of the shown capture.");
}

/// Returns the colour of a change; `none` if it is neither better nor worse.
std::uint32_t change_rgb(const Style& style, Change change, std::uint32_t none) {
    return change == Change::better ? style.colours.good : change == Change::worse ? style.colours.bad : none;
}

/// Draws the interval as a line and the ratio as a dot, hollow without an interval.
void draw_interval_cell(const Style& style, const Forest& forest, const ForestRow& row) {
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const auto x = [&](double ratio) { return at.x + width * static_cast<float>(forest.at(ratio)); };
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (const double tick : forest.ticks)
        list->AddLine({x(tick), at.y - 1}, {x(tick), at.y + h + 1},
                      to_im(tick == 1 ? style.colours.text_dim : style.colours.line));
    ImGui::Dummy({width, h});
    if (row.ratio <= 0) return;
    const std::uint32_t rgb = change_rgb(style, row.quantity->change, style.colours.text);
    const float y = at.y + h / 2, radius = 0.22f * style.em;
    if (row.interval) {
        draw_interval_line(list, x(row.interval->first), x(row.interval->second), y, radius, to_im(rgb));
        list->AddCircleFilled({x(row.ratio), y}, radius, to_im(rgb));
    } else {
        list->AddCircle({x(row.ratio), y}, radius, to_im(rgb), 0, 1.5f);
    }
}

void draw_table(const Style& style, const Comparison& comparison) {
    const Forest forest = build_forest(comparison);
    const float foot = 2 * ImGui::GetTextLineHeightWithSpacing();
    const float room = std::max(ImGui::GetContentRegionAvail().y - foot, 6 * style.em);
    const float width = std::max(ImGui::GetContentRegionAvail().x - style.em, 44 * style.em);
    if (!ImGui::BeginTable("ratios", 7, scrolling_table_flags, {0, room}, width)) return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn(comparison.forced ? "FORCED" : "", ImGuiTableColumnFlags_WidthFixed);
    const float widths[] = {0.8f, 0.8f, 0.7f, 1.4f, 1.5f};
    for (std::size_t i = 1; i < compare_columns.size(); ++i)
        ImGui::TableSetupColumn(i == 5 ? "change" : compare_columns[i], ImGuiTableColumnFlags_WidthStretch,
                                widths[i - 1]);
    ImGui::TableSetupColumn("B / A (log scale)", ImGuiTableColumnFlags_WidthStretch, 2.6f);
    ImGui::TableHeadersRow();
    for (const ForestRow& row : forest.rows) {
        ImGui::TableNextRow();
        const auto cells = compare_cells(*row.quantity);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const Change change = i < 5 ? Change::none_shown : row.quantity->change;
            const TextColour colour(change_rgb(
                style, change, change == Change::none_shown ? style.colours.text : style.colours.text_dim));
            if (i > 0 && i < 5) {
                draw_cell_right(cells[i]);
                continue;
            }
            ImGui::TableNextColumn();
            ImGui::TextUnformatted(cells[i].c_str());
        }
        draw_interval_cell(style, forest, row);
    }
    ImGui::EndTable();
}

void draw_comparison(const Style& style, const Comparison& comparison) {
    ImGui::PushFont(style.ui_bold, 0);
    ImGui::TextWrapped("%s", comparison.verdict.c_str());
    ImGui::PopFont();
    for (const std::string& warning : comparison.warnings) draw_wrapped(style.colours.warn, warning);
    for (const auto& [letter, run] : {std::pair{'A', &comparison.a}, {'B', &comparison.b}})
        draw_cut_text(compare_side(letter, *run));
    draw_table(style, comparison);
    draw_hint(style, compare_footer(comparison));
}

/// Requests the comparison if the choice changed. For live runs, a button requests it.
void request_comparison(PanelContext& c, CompareState& state, bool live) {
    const CompareChoice choice{*state.a, *state.b, state.force};
    const CompareReport* report = c.status.comparison.get();
    const bool is_current = report != nullptr && report->choice == choice;
    if (live) {
        if (ImGui::Button("Compare recorded rounds")) c.commands.push_back(CmdCompare{choice});
        return;
    }
    if (is_current || c.status.comparing || state.requested == choice) return;
    state.requested = choice;
    c.commands.push_back(CmdCompare{choice});
}

}  // namespace

void draw_compare(PanelContext& c) {
    auto& state = c.panel_state.get<CompareState>();
    const std::vector<CompareRun> runs = comparable_runs(c.snapshot, c.status.others);
    keep_or_choose_pair(state, runs, c.ui.compare_newest);
    choose(c, state, runs);
    if (!state.a || !state.b)
        return draw_empty_text(c.style,
                               "Compares two runs over the same prompts, prompt by prompt: is B faster than "
                               "A, and why? Record a second run, or add another capture.");
    if (*state.a == *state.b)
        return draw_empty_text(c.style, "A and B are the same run. Choose another run.");
    const bool live = find(runs, state.a)->live || find(runs, state.b)->live;
    request_comparison(c, state, live);
    const CompareReport* report = c.status.comparison.get();
    if (report == nullptr || !(report->choice == CompareChoice{*state.a, *state.b, state.force})) {
        if (c.status.comparing) draw_hint(c.style, "comparing...");
        return;
    }
    if (report->comparison) return draw_comparison(c.style, *report->comparison);
    draw_wrapped(c.style.colours.warn, report->refusal);
    if (!report->may_force) return;
    if (ImGui::Button("Compare anyway")) state.force = true;
    show_tooltip(c.style,
                 "The result is marked as forced: the runs differ in more than the compared settings.");
}

}  // namespace draftscope
