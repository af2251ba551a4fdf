#include "app/gui/models/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/models/timeline.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {
namespace {

struct LatencyState {
    RebuildThrottle rebuild;
    LatencyModel model;
    bool by_position = false;  ///< else by length of the context
};

void draw_table(const Style& style, const LatencyModel& model) {
    if (model.rows.empty() || !ImGui::BeginTable("latency", 6, table_flags | sorting_flags)) return;
    ImGui::TableSetupColumn("latency, ms", ImGuiTableColumnFlags_WidthFixed);
    for (const char* name : {"n", "p50", "p90", "p99", "max"}) ImGui::TableSetupColumn(name, number_column);
    const auto keys = [&](std::size_t r) -> std::vector<SortKey> {
        const Summary& ms = model.rows[r].ms;
        return {model.rows[r].name, ms.n, ms.median, ms.p90, ms.p99, ms.max};
    };
    for (const std::size_t r : order_rows(draw_headings(), model.rows.size(), keys)) {
        const LatencyRow& row = model.rows[r];
        begin_row(row.name);
        show_tooltip(style, row.help);
        draw_cell_right(fmt::format("{}", row.ms.n));
        draw_cell_right(three_digits(row.ms.median));
        for (const auto& [quantile, samples] : {std::pair(row.ms.p90, 36), {row.ms.p99, 368}}) {
            draw_cell_right(quantile ? three_digits(*quantile) : "-", !quantile);
            if (!quantile) show_tooltip(style, fmt::format("needs at least {} samples", samples));
        }
        draw_cell_right(three_digits(row.ms.max));
    }
    ImGui::EndTable();
}

/// Sets an axis with one tick per bin.
void set_bin_axis(const std::vector<PositionBin>& bins, const std::vector<double>& places, bool by_position) {
    std::vector<std::string> labels;
    for (const PositionBin& bin : bins) labels.push_back(axis_label(bin));
    std::vector<const char*> texts;
    for (const std::string& label : labels) texts.push_back(label.c_str());
    constexpr ImPlotAxisFlags flags = ImPlotAxisFlags_NoGridLines | ImPlotAxisFlags_Lock;
    ImPlot::SetupAxis(
        ImAxis_X1, by_position ? "generated tokens before the round, from" : "context length in tokens, from",
        flags);
    ImPlot::SetupAxisTicks(ImAxis_X1, places.data(), static_cast<int>(places.size()), texts.data());
    ImPlot::SetupAxisLimits(ImAxis_X1, -0.6, static_cast<double>(bins.size()) - 0.4, ImPlotCond_Always);
}

/// Draws the speed of each bin as a bar, and tau as a line with an axis of its own.
void draw_plot(const Style& style, const std::vector<PositionBin>& bins, bool by_position, float height) {
    std::vector<double> places, speeds, taus;
    for (std::size_t b = 0; b < bins.size(); ++b) {
        places.push_back(static_cast<double>(b));
        speeds.push_back(bins[b].tokens_per_second);
        taus.push_back(bins[b].tau);
    }
    const double fastest = *std::ranges::max_element(speeds), longest = *std::ranges::max_element(taus);
    if (!ImPlot::BeginPlot("##speed", {-1, height}, plot_flags | ImPlotFlags_NoLegend)) return;
    set_bin_axis(bins, places, by_position);
    ImPlot::SetupAxis(ImAxis_Y1, "bars: tokens/s", ImPlotAxisFlags_Lock);
    ImPlot::SetupAxis(ImAxis_Y2, "line: tau",
                      ImPlotAxisFlags_Lock | ImPlotAxisFlags_Opposite | ImPlotAxisFlags_NoGridLines);
    ImPlot::SetupAxisLimits(ImAxis_Y1, 0, fastest > 0 ? 1.1 * fastest : 1, ImPlotCond_Always);
    ImPlot::SetupAxisLimits(ImAxis_Y2, 0, 1.1 * longest, ImPlotCond_Always);
    const int count = static_cast<int>(bins.size());
    ImPlot::PlotBars("tokens per second", places.data(), speeds.data(), count, 0.6,
                     {ImPlotProp_FillColor, to_vec(style.colours.accent, 0.65f), ImPlotProp_LineColor,
                      to_vec(style.colours.accent, 0.0f)});
    ImPlot::SetAxes(ImAxis_X1, ImAxis_Y2);
    const ImVec4 line = to_vec(style.colours.good);
    ImPlot::PlotLine("tau", places.data(), taus.data(), count,
                     {ImPlotProp_LineColor, line, ImPlotProp_LineWeight, 2.0f, ImPlotProp_Marker,
                      ImPlotMarker_Circle, ImPlotProp_MarkerFillColor, line});
    if (ImPlot::IsPlotHovered()) {
        const double at = std::round(ImPlot::GetPlotMousePos(ImAxis_X1, ImAxis_Y1).x);
        if (at >= 0 && at < count)
            ImGui::SetTooltip("%s", describe_bin(bins[static_cast<std::size_t>(at)]).c_str());
    }
    ImPlot::EndPlot();
}

}  // namespace

void draw_latency(PanelContext& context) {
    LatencyState& state = context.panel_state.get<LatencyState>();
    const Style& style = context.style;
    state.rebuild.update(context, context.ui.run_id,
                         [&] { state.model = build_latency(context.snapshot, context.ui.run_id); });
    const LatencyModel& model = state.model;
    if (!model.empty_text.empty()) return draw_empty_text(style, model.empty_text);
    ImGui::PushFont(nullptr, 0.9f * ImGui::GetStyle().FontSizeBase);
    draw_table(style, model);
    ImGui::PopFont();
    if (context.ui.range) draw_hint(style, "of the whole run, not of the selected range");
    if (model.by_context.empty()) return draw_hint(style, "no rounds yet");
    if (!context.picture) {
        if (ImGui::RadioButton("by context", !state.by_position)) state.by_position = false;
        show_tooltip(style, "by the tokens before a round, prompt included");
        ImGui::SameLine();
        if (ImGui::RadioButton("by position in the text", state.by_position)) state.by_position = true;
        show_tooltip(style, "by the generated tokens before a round");
    }
    const float height = std::max(ImGui::GetContentRegionAvail().y, 8 * style.em);
    draw_plot(style, state.by_position ? model.by_position : model.by_context, state.by_position, height);
}

}  // namespace draftscope
