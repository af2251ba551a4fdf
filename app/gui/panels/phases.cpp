#include "app/gui/models/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "app/gui/models/cached_model.h"
#include "app/gui/models/selection.h"
#include "app/gui/models/timeline.h"
#include "app/gui/panels/round_phases.h"
#include "app/gui/panels/widgets.h"
#include "base/bisect.h"
#include "base/format_count.h"
#include "base/phase.h"
#include "base/phase_names.h"

namespace draftscope {
namespace {

struct PhasesState {
    RebuildThrottle bars_rebuild;
    PhaseBars bars;
    std::string shown_steps;
    bool in_flight = false;  ///< the last bar is the round in flight
    StepWindow window;       ///< shown steps, unless a range is selected
    std::size_t room = 0;    ///< largest number of bars in the window
    RowId run_id = 0;
    bool whole_run = false;       ///< a bar is the mean of several steps
    bool without_verify = false;  ///< verification is most of a step, and hides the drafting
    int histogram_phase = 0;      ///< shown in place of the bars; 0 = none
    bool log_bins = true;
    bool had_range = false;  ///< in the frame before: Esc then leaves the range first
    CachedModel<PhaseHistogram,
                std::tuple<std::uint64_t, RowId, TimeNs, TimeNs, int, bool, std::optional<std::size_t>>>
        histogram;  ///< by data, run, range, phase, bins and step
};

bool is_drawn(const PhasesState& state, int phase_id) {
    return !state.without_verify || phase_id != static_cast<int>(Phase::verify);
}

std::optional<std::size_t> selected_step(const PanelContext& context) {
    if (!context.ui.round || *context.ui.round >= context.snapshot.rounds.size()) return std::nullopt;
    return context.snapshot.rounds[*context.ui.round].step_index;
}

void draw_swatch(const Style& style, int phase_id) {
    const float h = ImGui::GetTextLineHeight(), size = 0.72f * h;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const ImVec2 min(at.x, at.y + (h - size) / 2), max(at.x + size, at.y + (h + size) / 2);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (phase_id == remainder_phase_id)
        draw_hatching(list, min, max, to_im(style.colours.text_dim), 4);
    else
        list->AddRectFilled(min, max, style.phase(phase_id), 2);
    ImGui::Dummy({size, h});
    ImGui::SameLine(0, 0.4f * style.em);
}

/// Returns the distribution's statistics, for the tooltip.
std::string spread_text(const PhaseTableRow& row) {
    std::string text = fmt::format("per step: mean {} us, median {} us, MAD {} us", three_digits(row.mean_us),
                                   three_digits(row.median_us), three_digits(row.mad_us));
    if (row.p90_us) text += fmt::format(", p90 {} us", three_digits(*row.p90_us));
    text += row.p99_us
                ? fmt::format(", p99 {} us", three_digits(*row.p99_us))
                : fmt::format("; p{} needs at least {} steps", row.p90_us ? 99 : 90, row.p90_us ? 368 : 36);
    return text + "\nMAD: median absolute deviation x 1.4826, a robust estimate of the standard deviation";
}

/// Narrow panels omit columns: first the spread, then the exposed time, then the bandwidth.
void draw_table(const Style& style, const PhasesModel& model, int& histogram_phase) {
    const float width = ImGui::GetContentRegionAvail().x / style.em;
    const bool rate = width > 24, exposed = width > 29, spread = width > 34;
    std::vector<const char*> heads = {"phase", "n", "total ms"};
    if (exposed) heads.push_back("exp. ms");
    heads.push_back("med. us");
    if (spread) heads.push_back("MAD us");
    heads.insert(heads.end(), {"p90 us", "share"});
    if (rate) heads.push_back("GB/s");
    if (!ImGui::BeginTable("phases", static_cast<int>(heads.size()), table_flags | sorting_flags)) return;
    ImGui::TableSetupColumn(heads[0], ImGuiTableColumnFlags_WidthFixed);
    for (std::size_t i = 1; i < heads.size(); ++i)
        ImGui::TableSetupColumn(heads[i], ImGuiTableColumnFlags_WidthStretch | number_column,
                                ImGui::CalcTextSize(heads[i]).x + style.em);
    const auto keys = [&](std::size_t r) {
        const PhaseTableRow& row = model.rows[r];
        std::vector<SortKey> out = {row.name, row.count, row.total_ms};
        if (exposed) out.push_back(row.exposed_ms);
        out.push_back(row.median_us);
        if (spread) out.push_back(row.mad_us);
        out.insert(out.end(), {row.p90_us, row.share, row.gb_per_s});
        return out;
    };
    for (const std::size_t r : order_rows(draw_headings(), model.rows.size(), keys)) {
        const PhaseTableRow& row = model.rows[r];
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        if (row.child) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 0.8f * style.em);
        draw_swatch(style, row.phase_id);
        const bool none = row.count == 0, hatched = row.phase_id == remainder_phase_id;
        const bool shown = histogram_phase == row.phase_id;
        if (none)
            ImGui::TextUnformatted(row.name.c_str());
        else if (ImGui::Selectable(row.name.c_str(), shown))
            histogram_phase = shown ? 0 : row.phase_id;
        if (!none) show_tooltip(style, "Click to see how its times are distributed over the steps.");
        draw_cell_right(fmt::format("{}", row.count), none);
        draw_cell_right(none ? "-" : three_digits(row.total_ms), none);
        if (exposed) draw_cell_right(none ? "-" : three_digits(row.exposed_ms), none);
        draw_cell_right(none ? "-" : three_digits(row.median_us), none);
        if (!none) show_tooltip(style, spread_text(row));
        if (spread) draw_cell_right(none ? "-" : three_digits(row.mad_us), none);
        draw_cell_right(row.p90_us ? three_digits(*row.p90_us) : "-", !row.p90_us);
        if (!none && !row.p90_us) show_tooltip(style, spread_text(row));
        if (none)
            draw_cell_right("-", true);
        else
            draw_share_cell(row.share, fmt::format("{:.1f} %", 100 * row.share),
                            hatched ? to_im(style.colours.text_dim, 0.5f)
                                    : to_im(phase_colour(row.phase_id, style.theme), 0.35f),
                            hatched);
        if (!rate) continue;
        draw_cell_right(row.gb_per_s ? three_digits(*row.gb_per_s) : "-", !row.gb_per_s);
        if (row.of_probe)
            show_tooltip(style,
                         fmt::format("{:.0f} % of the read bandwidth measured on this "
                                     "machine with the same number of threads. Cached data can exceed it.",
                                     100 * *row.of_probe));
    }
    ImGui::EndTable();
}

void draw_categories(const Style& style, const PhasesModel& model) {
    if (model.categories.empty()) return;
    ImGui::Spacing();
    draw_in_font(style.ui_bold, "Drafting by category");
    if (!ImGui::BeginTable("categories", 4, table_flags | sorting_flags)) return;
    ImGui::TableSetupColumn("category", 0, 1.6f);
    ImGui::TableSetupColumn("steps", number_column, 0.7f);
    ImGui::TableSetupColumn("step ms", number_column, 0.9f);
    ImGui::TableSetupColumn("backbone + head, % of the step", number_column, 3.0f);
    const auto keys = [&](std::size_t r) -> std::vector<SortKey> {
        const CategoryShare& row = model.categories[r];
        return {row.category, row.steps, row.step_ms, row.draft()};
    };
    for (const std::size_t r : order_rows(draw_headings(), model.categories.size(), keys)) {
        const CategoryShare& row = model.categories[r];
        begin_row(row.category);
        draw_cell_right(fmt::format("{}", row.steps));
        draw_cell_right(three_digits(row.step_ms));
        ImGui::TableNextColumn();
        const ImVec2 at = ImGui::GetCursorScreenPos();
        const float h = ImGui::GetTextLineHeight(),
                    width = ImGui::GetContentRegionAvail().x - 5.4f * style.em;
        const float middle = at.x + width * static_cast<float>(row.backbone);
        ImDrawList* list = ImGui::GetWindowDrawList();
        list->AddRectFilled({at.x, at.y + 0.15f * h}, {middle, at.y + 0.85f * h}, style.phase(2));
        list->AddRectFilled({middle, at.y + 0.15f * h},
                            {at.x + width * static_cast<float>(row.draft()), at.y + 0.85f * h},
                            style.phase(4));
        ImGui::SetCursorPosX(ImGui::GetCursorPosX() + width + 0.4f * style.em);
        ImGui::Text("%.0f + %.0f %%", 100 * row.backbone, 100 * row.head);
    }
    ImGui::EndTable();
}

void show_bar_tooltip(const Style& style, const Snapshot& snapshot, const PhaseBar& bar, bool in_flight) {
    if (!ImGui::BeginTooltip()) return;
    const int first = snapshot.steps[bar.first_step].row.ordinal + 1;
    const std::string length = duration_text(static_cast<TimeNs>(bar.step_ns));
    draw_in_font(style.ui_bold, in_flight ? fmt::format("step {}, in progress: {} so far", first, length)
                                : bar.steps == 1 ? fmt::format("step {}: {}", first, length)
                                                 : fmt::format("mean of {} steps from step {}: {}", bar.steps,
                                                               first, length));
    if (bar.steps > 1) ImGui::Text("slowest %s", duration_text(static_cast<TimeNs>(bar.slowest_ns)).c_str());
    if (!in_flight)
        ImGui::Text("%s accepted in %s", format_count(bar.accepted, "draft token").c_str(),
                    format_count(bar.rounds, "round").c_str());
    if (bar.excluded > 0 && bar.steps > 1) ImGui::Text("%u of them excluded from statistics", bar.excluded);
    if (bar.excluded > 0 && bar.steps == 1) ImGui::TextUnformatted("excluded from statistics");
    for (const PhaseRow& phase : phase_rows) {
        const double ns = bar.part_ns[phase.id];
        if (ns <= 0) continue;
        draw_swatch(style, phase.id);
        ImGui::Text("%-10s %8s  %4.1f %%", std::string(phase.name).c_str(),
                    duration_text(static_cast<TimeNs>(ns)).c_str(), 100 * ns / std::max(bar.step_ns, 1.0));
    }
    ImGui::EndTooltip();
}

void draw_bar(const Style& style, const PhasesState& state, const PhaseBar& bar, ImVec2 min, ImVec2 max,
              double tallest) {
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float height = max.y - min.y;
    float y = max.y;
    for (const PhaseRow& phase : phase_rows) {
        const double ns = bar.part_ns[phase.id];
        if (ns <= 0 || !is_drawn(state, phase.id)) continue;
        const float top = std::max(y - height * static_cast<float>(ns / tallest), min.y);
        if (phase.id == remainder_phase_id)
            draw_hatching(list, {min.x, top}, {max.x, y}, to_im(style.colours.text_dim, 0.8f), 4);
        else
            list->AddRectFilled({min.x, top}, {max.x, y}, style.phase(phase.id));
        y = top;
    }
    if (bar.excluded == bar.steps)  // excluded from the table below
        draw_hatching(list, {min.x, y}, max, to_im(style.colours.panel, 0.85f), 4);
}

void draw_scale_line(const Style& style, ImVec2 min, ImVec2 max, double tallest) {
    const TimeNs step = tick_step(static_cast<TimeNs>(tallest), 2);
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (TimeNs t = step; static_cast<double>(t) <= tallest; t += step) {
        const float y = max.y - (max.y - min.y) * static_cast<float>(static_cast<double>(t) / tallest);
        list->AddLine({min.x, y}, {max.x, y}, to_im(style.colours.line, 0.8f));
        const std::string text = duration_text(t);
        const float size = 0.75f * style.em;
        const float width = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str()).x;
        list->AddText(style.ui, size, {min.x - width - 0.3f * style.em, y - size / 2},
                      to_im(style.colours.text_dim), text.c_str());
    }
}

void draw_bars(PanelContext& context, PhasesState& state, float height) {
    const Style& style = context.style;
    const float names = 3.2f * style.em;
    const ImVec2 start = ImGui::GetCursorScreenPos();
    const float width = std::max(ImGui::GetContentRegionAvail().x, names + 4 * style.em);
    ImGui::InvisibleButton("bars", {width, height});
    const ImVec2 min(start.x + names, start.y + 0.3f * style.em), max(start.x + width, start.y + height);
    const PhaseBars& bars = state.bars;
    double tallest = 0;
    for (const PhaseBar& bar : bars.bars) {
        double sum = bar.step_ns;
        if (state.without_verify) sum -= bar.part_ns[static_cast<std::size_t>(Phase::verify)];
        tallest = std::max(tallest, sum);
    }
    if (tallest <= 0) return;
    draw_scale_line(style, min, max, tallest);
    const float pitch = std::min((max.x - min.x) / static_cast<float>(bars.bars.size()), 1.1f * style.em);
    const float gap = pitch > 4 ? 1.0f : 0.0f;
    const float mouse = ImGui::GetIO().MousePos.x;
    const std::optional<std::size_t> chosen = selected_step(context);
    for (std::size_t i = 0; i < bars.bars.size(); ++i) {
        const PhaseBar& bar = bars.bars[i];
        const float x = min.x + pitch * static_cast<float>(i);
        draw_bar(style, state, bar, {x, min.y}, {x + pitch - gap, max.y}, tallest);
        const bool in_flight = state.in_flight && i + 1 == bars.bars.size();
        const bool selected =
            in_flight ? in_flight_selected(context.snapshot, context.ui)
                      : chosen && *chosen >= bar.first_step && *chosen < bar.first_step + bar.steps;
        if (selected)
            ImGui::GetWindowDrawList()->AddRect({x - 1, min.y}, {x + pitch - gap + 1, max.y + 1},
                                                to_im(style.colours.accent), 0, 1.5f);
        if (!ImGui::IsItemHovered() || mouse < x || mouse >= x + pitch) continue;
        show_bar_tooltip(style, in_flight ? *context.snapshot.in_flight : context.snapshot, bar, in_flight);
        if (in_flight) {
            if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) context.ui.select_in_flight();
            continue;
        }
        const RowRange rounds = context.snapshot.steps[bar.first_step].rounds;
        if (ImGui::IsMouseClicked(ImGuiMouseButton_Left) && rounds.count > 0)
            context.ui.select_round(rounds.first, context.snapshot.rounds.size());
    }
}

/// Draws how often a phase took which time, in place of the bars. A click selects the slowest step of a bin.
void draw_histogram(PanelContext& context, PhasesState& state, float height) {
    const Style& style = context.style;
    const TimeRange range = context.ui.range.value_or(TimeRange());
    const std::tuple key(context.ui.data_key, context.ui.run_id, range.start_ns, range.end_ns,
                         state.histogram_phase, state.log_bins, selected_step(context));
    const PhaseHistogram& histogram = state.histogram.get(key, [&] {
        const auto samples = context.panel_state.get<SharedPhases>().builder.samples(state.histogram_phase);
        const int bins = std::clamp(static_cast<int>(2 * std::sqrt(samples.size())), 12, 60);
        return build_phase_histogram(samples, state.log_bins, bins, std::get<6>(key));
    });
    const PhaseRow& phase = phase_rows[state.histogram_phase];
    const float top = ImGui::GetCursorPosY();
    ImGui::AlignTextToFramePadding();
    draw_in_font(style.ui_bold,
                 fmt::format("{}, {}", phase.name, format_count(histogram.steps, "counted step")));
    ImGui::SameLine(0, style.em);
    ImGui::Checkbox("log bins", &state.log_bins);
    ImGui::SameLine(0, style.em);
    const bool escape = ImGui::IsKeyPressed(ImGuiKey_Escape) && !state.had_range &&
                        !ImGui::GetIO().WantTextInput && !ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopup);
    if (ImGui::Button("x##histogram") || escape) state.histogram_phase = 0;
    show_tooltip(style, "Show the bars of the steps again (Esc).");
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const ImVec2 size(std::max(ImGui::GetContentRegionAvail().x, style.em),
                      std::max(height - (ImGui::GetCursorPosY() - top), 3 * style.em));
    ImGui::InvisibleButton("histogram", size);
    if (histogram.bins.empty()) return;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float text = 0.8f * style.em, bottom = at.y + size.y - 1.2f * text;
    const auto write = [&](float x, float y, const std::string& label, std::uint32_t rgb) {
        const float width = style.ui->CalcTextSizeA(text, 1e9f, 0, label.c_str()).x;
        const float left = x + width <= at.x + size.x ? x : x - width - 0.6f * text;
        list->AddText(style.ui, text, {left, y}, to_im(rgb), label.c_str());
    };
    const auto us_text = [](double us) { return duration_text(static_cast<TimeNs>(us * 1e3)); };
    const float pitch = size.x / static_cast<float>(histogram.bins.size());
    const auto under = static_cast<std::ptrdiff_t>(std::floor((ImGui::GetIO().MousePos.x - at.x) / pitch));
    for (std::size_t i = 0; i < histogram.bins.size(); ++i) {
        const PhaseHistogram::Bin& bin = histogram.bins[i];
        // While data stream in, the samples may be those of a capture that was replaced.
        if (bin.steps == 0 || bin.slowest >= context.snapshot.steps.size()) continue;
        const float x = at.x + pitch * static_cast<float>(i);
        const float part = static_cast<float>(bin.steps) / static_cast<float>(histogram.tallest);
        const float room = bottom - at.y - 3.6f * text;  // the labels of the lines are above
        const ImVec2 min(x, bottom - std::max(room * part, 2.0f)), max(x + pitch - 1, bottom);
        list->AddRectFilled(min, max, style.phase(phase.id));
        if (!ImGui::IsItemHovered() || under != static_cast<std::ptrdiff_t>(i)) continue;
        list->AddRect({x - 1, min.y - 1}, {x + pitch, bottom}, to_im(style.colours.text));
        ImGui::SetTooltip(
            "%s to %s: %s\nclick: the slowest of them, step %d with %s", us_text(bin.low_us).c_str(),
            us_text(bin.high_us).c_str(), format_count(bin.steps, "step").c_str(),
            context.snapshot.steps[bin.slowest].row.ordinal + 1, us_text(bin.slowest_us).c_str());
        const RowRange rounds = context.snapshot.steps[bin.slowest].rounds;
        if (ImGui::IsMouseClicked(ImGuiMouseButton_Left) && rounds.count > 0)
            context.ui.select_round(rounds.first, context.snapshot.rounds.size());
    }
    list->AddLine({at.x, bottom}, {at.x + size.x, bottom}, to_im(style.colours.line));
    write(at.x, bottom, us_text(histogram.bins.front().low_us), style.colours.text_dim);
    write(at.x + size.x, bottom, us_text(histogram.bins.back().high_us), style.colours.text_dim);
    float y = at.y;
    const auto line = [&](const char* name, std::optional<double> us, std::uint32_t rgb) {
        if (!us) return;
        const float x = at.x + size.x * static_cast<float>(histogram.place(*us));
        list->AddLine({x, y}, {x, bottom}, to_im(rgb), 1.5f);
        write(x + 0.3f * text, y, fmt::format("{} {}", name, us_text(*us)), rgb);
        y += 0.9f * text;
    };
    line("median", histogram.median_us, style.colours.text);
    line("p90", histogram.p90_us, style.colours.text_dim);
    line("p99", histogram.p99_us, style.colours.text_dim);
    line("selected", histogram.selected_us, style.colours.accent);
}

/// Returns the steps of the selected range, otherwise those around the selected round. The bars stay where
/// they are while the round is among them.
StepWindow shown_steps(const PanelContext& context, PhasesState& state, std::size_t count) {
    const Snapshot& snapshot = context.snapshot;
    std::optional<std::size_t> selected;
    if (!context.ui.follow) selected = selected_step(context);
    if (!context.ui.range && state.whole_run)
        return step_window(snapshot, context.ui.run_id, std::nullopt, snapshot.steps.size());
    if (!context.ui.range) {
        const bool same = state.run_id == context.ui.run_id && state.room == count &&
                          state.window.last - state.window.first >= count;
        const bool shown = selected && *selected >= state.window.first && *selected < state.window.last;
        if (!same || !shown) state.window = step_window(snapshot, context.ui.run_id, selected, count);
        state.room = count;
        state.run_id = context.ui.run_id;
        return state.window;
    }
    const StepWindow all = step_window(snapshot, context.ui.run_id, std::nullopt, snapshot.steps.size());
    const TimeRange& range = *context.ui.range;
    const std::size_t first = bisect(
        all.first, all.last, [&](std::size_t i) { return snapshot.steps[i].row.end_ns <= range.start_ns; });
    return {first, bisect(first, all.last,
                          [&](std::size_t i) { return snapshot.steps[i].row.start_ns < range.end_ns; })};
}

}  // namespace

void draw_phases(PanelContext& context) {
    PhasesState& state = context.panel_state.get<PhasesState>();
    const Style& style = context.style;
    const auto run_key = static_cast<std::uint64_t>(context.ui.run_id);
    const PhasesModel& model = shared_phases(context);
    if (!model.empty_text.empty()) return draw_empty_text(style, model.empty_text);

    if (!context.picture) {
        ImGui::Checkbox("whole run", &state.whole_run);
        show_tooltip(style,
                     "Bars over all steps of the run, each the mean of several. Else the steps around the "
                     "selected round.");
        ImGui::SameLine();
        ImGui::Checkbox("without verify", &state.without_verify);
        show_tooltip(
            style,
            "Leaves verification out of the bars, so that the phases of drafting are large enough to "
            "compare. The table has all phases.");
    }
    const float width = ImGui::GetContentRegionAvail().x;
    const int room = std::max(static_cast<int>(width - 3.2f * style.em) / 6, 8);
    const StepWindow window = shown_steps(context, state, room);
    const std::size_t all_steps = context.snapshot.steps.size();
    const std::uint64_t bars_key =
        run_key * 1000003u + window.first * 8191u + window.last * 31u + static_cast<std::uint64_t>(room);
    state.bars_rebuild.update(context, bars_key, [&] {
        state.bars = build_phase_bars(context.snapshot, context.ui.run_id, window.first, window.last, room);
        state.shown_steps = shown_steps_text(context.snapshot, context.ui.run_id, window);
        const Snapshot* flight = round_in_flight(context.snapshot, context.ui);
        state.in_flight = flight != nullptr && window.last == all_steps;
        if (state.in_flight) append_bars(state.bars, build_phase_bars(*flight, context.ui.run_id, 0, 1, 1));
    });
    ImGui::PushStyleVar(ImGuiStyleVar_CellPadding, {ImGui::GetStyle().CellPadding.x, 0.06f * style.em});
    const float line = 0.9f * ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
    const std::size_t categories = model.categories.size();
    const auto rows = static_cast<float>(model.rows.size() + 1 + (categories > 0 ? categories + 3 : 0));
    const float left = ImGui::GetContentRegionAvail().y - rows * line - 2.2f * style.em;
    const float bars_height = std::clamp(left, 5.5f * style.em, 14 * style.em);
    if (state.histogram_phase != 0)
        draw_histogram(context, state, bars_height);
    else
        draw_bars(context, state, bars_height);
    state.had_range = context.ui.range.has_value();
    const std::string per_bar = state.bars.steps_per_bar > 1
                                    ? fmt::format("; one bar = {} steps", state.bars.steps_per_bar)
                                    : state.shown_steps;
    draw_hint(style, model.caption + per_bar + model.shares_text);
    ImGui::PushFont(nullptr, 0.9f * ImGui::GetStyle().FontSizeBase);
    draw_table(style, model, state.histogram_phase);
    draw_categories(style, model);
    ImGui::PopFont();
    ImGui::PopStyleVar();
}

}  // namespace draftscope
