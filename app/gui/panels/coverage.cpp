#include "app/gui/models/coverage.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "app/gui/panels/rebuild.h"
#include "capture/head_colours.h"

namespace draftscope {
namespace {

struct CoverageMemory {
    Rebuild rebuild;
    CoverageIndex index;
    CoverageModel model;
    bool by_category = false;
    RowId fitted_run = 0;
};

constexpr std::uint32_t category_rgb[] = {0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7,
                                          0x56B4E9, 0xD55E00, 0xF0E442};

int format_rank(double value, char* buffer, int size, void*) {
    if (value >= 1000) return std::snprintf(buffer, static_cast<std::size_t>(size), "%gk", value / 1000);
    return std::snprintf(buffer, static_cast<std::size_t>(size), "%g", value);
}

void draw_curves(const Style& style, const CoverageModel& model, bool by_category) {
    std::vector<double> xs, ys;
    std::size_t category = 0;
    for (const CoverageCurve& curve : model.curves) {
        const bool all = curve.label == "all";
        if (!all && !by_category) continue;
        xs.clear();
        ys.clear();
        for (const CoveragePoint& point : curve.points) {
            xs.push_back(point.v);
            ys.push_back(100 * point.coverage);
        }
        const std::uint32_t rgb =
            all ? style.colours.text
                : data_colour(category_rgb[category++ % std::size(category_rgb)], style.theme);
        const std::string label = fmt::format("{} ({})", curve.label, curve.tokens);
        ImPlot::PlotLine(label.c_str(), xs.data(), ys.data(), static_cast<int>(xs.size()),
                         {ImPlotProp_LineColor, to_vec(rgb), ImPlotProp_LineWeight, all ? 2.2f : 1.3f});
    }
}

void star(ImDrawList* list, ImVec2 at, float radius, ImU32 fill, ImU32 edge) {
    ImVec2 points[10];
    for (int i = 0; i < 10; ++i) {
        const float r = i % 2 == 0 ? radius : 0.45f * radius;
        const float angle = -1.5708f + 0.62832f * static_cast<float>(i);
        points[i] = {at.x + r * std::cos(angle), at.y + r * std::sin(angle)};
    }
    list->AddConcavePolyFilled(points, 10, fill);
    list->AddPolyline(points, 10, edge, 1.5f, ImDrawFlags_Closed);
}

void draw_live_head(const Style& style, const CoverageModel& model, std::uint32_t rgb) {
    if (!model.live) return;
    const LiveHeadMark& live = *model.live;
    const ImVec2 at = ImPlot::PlotToPixels(std::max(live.active_rows, 1.0), 100 * live.coverage);
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect(8);
    const ImU32 fill = to_im(data_colour(rgb, style.theme)), edge = to_im(style.colours.panel);
    if (live.is_dynamic) {
        star(list, at, 0.65f * style.em, fill, edge);
    } else {
        const float r = 0.42f * style.em;
        const ImVec2 points[] = {{at.x, at.y - r}, {at.x + r, at.y}, {at.x, at.y + r}, {at.x - r, at.y}};
        list->AddConvexPolyFilled(points, 4, fill);
        list->AddPolyline(points, 4, edge, 1.5f, ImDrawFlags_Closed);
    }
    const std::string text = fmt::format("{}: {:.1f} %", live.head, 100 * live.coverage);
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    const ImVec2 room = ImPlot::GetPlotPos();
    const float x = at.x - extent.x - 0.9f * style.em < room.x ? at.x + 0.9f * style.em
                                                               : at.x - extent.x - 0.9f * style.em;
    const float y = at.y + 0.35f * style.em;
    list->AddRectFilled({x - 3, y - 1}, {x + extent.x + 3, y + extent.y + 1},
                        to_im(style.colours.panel, 0.85f), 2);
    list->AddText({x, y}, to_im(style.colours.text), text.c_str());
    ImPlot::PopPlotClipRect();
}

/// The round's tokens: a tick on the rank axis each; those the head could not propose stand taller, with a
/// cross.
void draw_round_tokens(PanelContext& context, const CoverageModel& model, double base) {
    const Style& style = context.style;
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect();
    for (const RoundToken& token : model.round_tokens) {
        const ImVec2 low = ImPlot::PlotToPixels(token.rank, base);
        const float height = token.covered ? 0.8f * style.em : 1.3f * style.em;
        const bool hovered = context.ui.hovered_token == token.token_id;
        const ImU32 colour = to_im(token.covered ? style.colours.good : style.colours.bad);
        list->AddLine(low, {low.x, low.y - height}, colour, hovered ? 3.5f : 2.0f);
        const float r = 0.22f * style.em;
        const ImVec2 tip(low.x, low.y - height - r);
        if (token.covered) {
            list->AddCircleFilled(tip, r, colour);
        } else {
            list->AddLine({tip.x - r, tip.y - r}, {tip.x + r, tip.y + r}, colour, 2);
            list->AddLine({tip.x - r, tip.y + r}, {tip.x + r, tip.y - r}, colour, 2);
        }
    }
    ImPlot::PopPlotClipRect();
    if (!ImPlot::IsPlotHovered()) return;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    for (const RoundToken& token : model.round_tokens) {
        const ImVec2 low = ImPlot::PlotToPixels(token.rank, base);
        if (std::abs(low.x - mouse.x) > 0.4f * style.em || mouse.y < low.y - 2 * style.em) continue;
        context.ui.hovered_token = token.token_id;
        ImGui::SetTooltip("%s  rank %.0f%s", token.text.c_str(), token.rank,
                          token.covered ? "" : "\noutside the head's active set");
        return;
    }
}

std::uint32_t live_colour(const PanelContext& context, const CoverageModel& model) {
    return model.live ? head_colour(model.live->head) : context.style.colours.accent;
}

void draw_coverage_plot(PanelContext& context, CoverageMemory& memory, float height, bool fit) {
    const Style& style = context.style;
    const CoverageModel& model = memory.model;
    constexpr ImPlotFlags flags = ImPlotFlags_NoMenus | ImPlotFlags_NoBoxSelect | ImPlotFlags_NoMouseText;
    const ImPlotFlags legend = memory.by_category ? 0 : ImPlotFlags_NoLegend;
    if (!ImPlot::BeginPlot("##coverage", {-1, height}, flags | legend)) return;
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxis(ImAxis_X1, "shortlist size (tokens)");
    ImPlot::SetupAxis(ImAxis_Y1, "covered, %");
    ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
    ImPlot::SetupAxisFormat(ImAxis_X1, format_rank);
    const double widest = std::max<double>(model.vocab_size, model.live ? model.live->active_rows : 1);
    ImPlot::SetupAxisLimits(ImAxis_X1, 1, widest * 1.4, when);
    ImPlot::SetupAxisLimits(ImAxis_Y1, 0, 104, when);
    ImPlot::SetupLegend(ImPlotLocation_NorthWest);
    if (model.least_v_for_99 > 0) {
        const double line = model.least_v_for_99;
        ImPlot::PlotInfLines("##99", &line, 1, {ImPlotProp_LineColor, to_vec(style.colours.text_dim, 0.7f)});
    }
    draw_curves(style, model, memory.by_category);
    draw_round_tokens(context, model, ImPlot::GetPlotLimits().Y.Min);
    draw_live_head(style, model, live_colour(context, model));
    if (ImPlot::IsPlotHovered() && !model.curves.empty()) {
        const double v = ImPlot::GetPlotMousePos().x;
        const double at = std::clamp(v, 1.0, static_cast<double>(model.vocab_size));
        const double coverage = coverage_at(memory.index.all(), static_cast<int>(at));
        ImPlot::Annotation(at, 100 * coverage, to_vec(style.colours.raised), {12, 14}, true,
                           "%.0f tokens: %.1f %%", at, 100 * coverage);
    }
    ImPlot::EndPlot();
}

void draw_tail_plot(PanelContext& context, const CoverageModel& model, float height, bool fit) {
    const Style& style = context.style;
    constexpr ImPlotFlags flags =
        ImPlotFlags_NoMenus | ImPlotFlags_NoBoxSelect | ImPlotFlags_NoMouseText | ImPlotFlags_NoLegend;
    if (!ImPlot::BeginPlot("##tail", {-1, height}, flags)) return;
    double most = 1;
    for (const RankBin& bin : model.tail) most = std::max(most, static_cast<double>(bin.tokens));
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxis(ImAxis_X1, "frequency rank of the emitted token");
    ImPlot::SetupAxis(ImAxis_Y1, "tokens", ImPlotAxisFlags_AutoFit);
    ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
    ImPlot::SetupAxisFormat(ImAxis_X1, format_rank);
    ImPlot::SetupAxisLimits(ImAxis_X1, 1, model.vocab_size * 1.4, when);
    ImPlot::SetupAxisLimits(ImAxis_Y1, 0, most * 1.1, ImPlotCond_Always);
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PlotDummy("tail");
    ImPlot::PushPlotClipRect();
    for (const RankBin& bin : model.tail) {
        if (bin.tokens == 0) continue;
        const ImVec2 min = ImPlot::PlotToPixels(bin.from, static_cast<double>(bin.tokens));
        const ImVec2 max = ImPlot::PlotToPixels(bin.to, 0);
        const ImVec2 missed = ImPlot::PlotToPixels(bin.to, static_cast<double>(bin.missed));
        list->AddRectFilled({min.x + 0.5f, min.y}, {max.x - 0.5f, max.y}, to_im(style.colours.accent, 0.65f));
        if (bin.missed > 0) {
            list->AddRectFilled({min.x + 0.5f, missed.y}, {max.x - 0.5f, max.y}, to_im(style.colours.bad));
            for (float y = max.y; y > missed.y; y -= 4)
                list->AddLine({min.x, y}, {max.x, y}, to_im(style.colours.panel, 0.8f));
        }
    }
    ImPlot::PopPlotClipRect();
    if (ImPlot::IsPlotHovered()) {
        const double rank = ImPlot::GetPlotMousePos().x;
        for (const RankBin& bin : model.tail)
            if (rank >= bin.from && rank < bin.to)
                ImGui::SetTooltip("ranks %.0f to %.0f: %lld tokens, %lld outside the active set", bin.from,
                                  bin.to - 1, static_cast<long long>(bin.tokens),
                                  static_cast<long long>(bin.missed));
    }
    ImPlot::EndPlot();
}

void caption(const Style& style, CoverageMemory& memory) {
    const CoverageModel& model = memory.model;
    std::string text;
    if (model.least_v_for_99 > 0)
        text = fmt::format("99 % needs the {} most frequent tokens", model.least_v_for_99);
    if (model.unranked > 0)
        text += fmt::format("{}{} tokens unranked", text.empty() ? "" : "; ", model.unranked);
    ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
    ImGui::TextUnformatted(text.c_str());
    ImGui::PopStyleColor();
    if (model.curves.size() <= 1) return;
    ImGui::SameLine();
    const float room = ImGui::GetContentRegionAvail().x - 7 * style.em;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    ImGui::Checkbox("categories", &memory.by_category);
}

}  // namespace

void draw_coverage(PanelContext& context) {
    CoverageMemory& memory = context.memory.get<CoverageMemory>();
    const Style& style = context.style;
    const std::uint64_t key =
        static_cast<std::uint64_t>(context.ui.run_id) * 1000003u + context.ui.round.value_or(~std::size_t{0});
    if (memory.rebuild.needed(context, key))
        memory.rebuild.run(context, key, [&] {
            memory.index.update(context.snapshot, context.ui.run_id);
            memory.model = build_coverage(context.snapshot, memory.index, context.ui.round);
        });
    const CoverageModel& model = memory.model;
    if (!model.empty_text.empty()) return draw_empty_text(style, model.empty_text);
    if (!model.ranking_text.empty()) return draw_empty_text(style, model.ranking_text);
    const bool fit = context.ui.fit_requested || memory.fitted_run != context.ui.run_id;
    memory.fitted_run = context.ui.run_id;
    caption(style, memory);
    const float room = ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ItemSpacing.y;
    draw_coverage_plot(context, memory, 0.6f * room, fit);
    draw_tail_plot(context, model, 0.4f * room, fit);
}

}  // namespace draftscope
