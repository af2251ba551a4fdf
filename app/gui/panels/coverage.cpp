#include "app/gui/models/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/models/plane.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "capture/token_text.h"

namespace draftscope {
namespace {

struct CoverageState {
    RebuildThrottle rebuild;
    CoverageIndex index;
    CoverageModel model;
    bool by_category = false;
    bool by_round = false;  ///< lower plot: coverage by round instead of tokens by rank
    RowId fitted_run = 0;
};

constexpr std::uint32_t category_rgb[] = {0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7,
                                          0x56B4E9, 0xD55E00, 0xF0E442};

int format_rank(double value, char* buffer, int size, void*) {
    if (value >= 1000) return std::snprintf(buffer, size, "%gk", value / 1000);
    return std::snprintf(buffer, size, "%g", value);
}

/// Leaves ticks above 100 % unlabelled: that space is for marks.
int format_percent(double value, char* buffer, int size, void*) {
    if (value < 100.01) return std::snprintf(buffer, size, "%g", value);
    *buffer = 0;
    return 0;
}

void draw_curve(const std::string& name, const CoverageCurve& curve, ImVec4 colour, float weight) {
    std::vector<double> xs, ys;
    for (const CoveragePoint& point : curve.points) {
        xs.push_back(point.v);
        ys.push_back(100 * point.coverage);
    }
    ImPlot::PlotLine(name.c_str(), xs.data(), ys.data(), static_cast<int>(xs.size()),
                     {ImPlotProp_LineColor, colour, ImPlotProp_LineWeight, weight});
}

/// The first curve is that of all tokens.
void draw_curves(const Style& style, const CoverageModel& model, bool by_category) {
    if (!by_category)
        draw_curve("best possible ranking", model.best, to_vec(style.colours.text_dim, 0.8f), 1.2f);
    draw_curve("token ranking", model.curves.front(), to_vec(style.colours.text), 2.2f);
    for (std::size_t i = 1; by_category && i < model.curves.size(); ++i) {
        const CoverageCurve& curve = model.curves[i];
        const std::uint32_t rgb = data_colour(category_rgb[(i - 1) % std::size(category_rgb)], style.theme);
        draw_curve(fmt::format("{} ({})", curve.label, curve.tokens), curve, to_vec(rgb), 1.3f);
    }
}

void draw_mass_tick(ImDrawList* list, const HeadMark& head, ImVec2 at, float em, ImU32 colour) {
    if (!head.covered_mass) return;
    const ImVec2 end = ImPlot::PlotToPixels(std::max(head.active_rows, 1.0), 100 * *head.covered_mass);
    list->AddLine(at, end, colour, 1.2f);
    list->AddLine({end.x - 0.35f * em, end.y}, {end.x + 0.35f * em, end.y}, colour, 2.0f);
}

void show_mark_tooltip(const HeadMark& head) {
    if (!ImGui::BeginTooltip()) return;
    ImGui::Text("%s%s", head.head.c_str(),
                head.mode == HeadMode::drive       ? ""
                : head.mode == HeadMode::selfpaced ? "  (shadow)"
                                                   : "  (aligned, an estimate)");
    ImGui::Text("%s; covers %.1f %% of the output", head.size_text.c_str(), 100 * head.coverage);
    if (head.covered_mass)
        ImGui::Text("%.1f %% of the target's probability: upper bound of acceptance (bar)",
                    100 * *head.covered_mass);
    ImGui::TextUnformatted(head.is_dynamic ? "context-dependent shortlist" : "fixed shortlist");
    ImGui::EndTooltip();
}

/// Places the names next to the marks without overlaps, the driving head's first.
void label_marks(const Style& style, const CoverageModel& model, const std::vector<ImVec2>& marks) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    const ImVec2 origin = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
    const float font = 0.82f * style.em;
    LabelPlacer places({origin.x, origin.y, origin.x + size.x, origin.y + size.y});
    const float r = 0.45f * style.em;
    for (const ImVec2 at : marks) places.take({at.x - r, at.y - r, at.x + r, at.y + r});
    const bool room =
        size.y > 13 * style.em;  // a small plot names the driving head; tooltips name the others
    for (std::size_t i = marks.size(); i-- > 0;) {
        if (!room && model.heads[i].mode != HeadMode::drive) continue;
        const std::string text =
            fmt::format("{} {:.1f} %", model.heads[i].label, 100 * model.heads[i].coverage);
        const ImVec2 extent = style.ui->CalcTextSizeA(font, 1e9f, 0, text.c_str());
        const auto around = boxes_around(marks[i].x, marks[i].y, 0.55f * style.em, extent.x + 4, extent.y);
        const bool driving = model.heads[i].mode == HeadMode::drive;
        const auto box = places.place(around, driving);
        if (!box) continue;
        list->AddRectFilled({box->left, box->top}, {box->right, box->bottom}, to_im(style.colours.panel), 2);
        list->AddText(style.ui, font, {box->left + 2, box->top}, to_im(style.colours.text), text.c_str());
    }
}

/// Draws dynamic heads as stars and fixed shortlists as diamonds, the driving head larger. A bar leads from
/// token coverage to covered probability.
void draw_heads(const Style& style, const CoverageModel& model) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    std::vector<ImVec2> places;
    const HeadMark* hovered = nullptr;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    ImPlot::PushPlotClipRect(8);
    for (const HeadMark& head : model.heads) {
        const ImVec2 at = ImPlot::PlotToPixels(std::max(head.active_rows, 1.0), 100 * head.coverage);
        const ImU32 colour = to_im(data_colour(head.rgb, style.theme));
        const ImU32 ground = to_im(style.colours.panel);
        const ImU32 fill = head.estimate ? ground : colour, edge = head.estimate ? colour : ground;
        const float scale = head.mode == HeadMode::drive ? 1.25f : 0.9f;
        draw_mass_tick(list, head, at, style.em, colour);
        if (head.is_dynamic)
            draw_star(list, at, scale * 0.55f * style.em, fill, edge);
        else
            draw_diamond(list, at, scale * 0.38f * style.em, fill, edge, 1.5f);
        if (std::abs(mouse.x - at.x) + std::abs(mouse.y - at.y) < 0.8f * style.em) hovered = &head;
        places.push_back(at);
    }
    label_marks(style, model, places);
    ImPlot::PopPlotClipRect();
    if (hovered != nullptr && ImPlot::IsPlotHovered()) show_mark_tooltip(*hovered);
}

/// Marks the round's tokens on the rank axis. Tokens outside the active set have a taller tick and a cross.
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
        const std::string text =
            replace_missing_glyphs(token.text, [&](char32_t code) { return style.has_glyph(code); });
        ImGui::SetTooltip("%s  rank %.0f%s", text.c_str(), token.rank,
                          token.covered ? "" : "\noutside the head's active set");
        return;
    }
}

/// A low plot has no legend, which would cover the curves.
ImPlotFlags curve_flags(const Style& style, float height) {
    return height < 16 * style.em ? plot_flags | ImPlotFlags_NoLegend : plot_flags;
}

/// Returns a size below every head's shortlist, at most a few hundred tokens.
double first_size(const CoverageModel& model) {
    double size = 256;
    for (const HeadMark& head : model.heads) size = std::min(size, 0.5 * head.active_rows);
    return std::clamp(size, 1.0, std::max(1.0, model.vocab_size / 4.0));
}

void draw_coverage_plot(PanelContext& context, CoverageState& state, float height, bool fit) {
    const Style& style = context.style;
    const CoverageModel& model = state.model;
    if (!ImPlot::BeginPlot("##coverage", {-1, height}, curve_flags(style, height))) return;
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxes("shortlist size (tokens)", "covered, %");
    ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
    ImPlot::SetupAxisFormat(ImAxis_X1, format_rank);
    ImPlot::SetupAxisFormat(ImAxis_Y1, format_percent);
    double widest = model.vocab_size;
    for (const HeadMark& head : model.heads) widest = std::max(widest, head.active_rows);
    // Shows the range of the shortlists; the user can zoom out.
    const double smallest = first_size(model);
    const double min_percent = 100 * coverage_at(state.index.all(), static_cast<int>(smallest));
    ImPlot::SetupAxisLimits(ImAxis_X1, smallest, widest * 1.4, when);
    // Space above 100 % for marks.
    const double bottom = std::max(0.0, min_percent - 2),
                 above = 0.9 * style.em / std::max(height - 4 * style.em, 1.0f);
    ImPlot::SetupAxisLimits(ImAxis_Y1, bottom, 100 + std::clamp(above, 0.03, 0.25) * (100 - bottom), when);
    ImPlot::SetupLegend(ImPlotLocation_SouthEast);
    if (model.min_v_for_99 > 0) {
        const double line = model.min_v_for_99;
        ImPlot::PlotInfLines("##99", &line, 1, {ImPlotProp_LineColor, to_vec(style.colours.text_dim, 0.7f)});
    }
    draw_curves(style, model, state.by_category);
    draw_round_tokens(context, model, ImPlot::GetPlotLimits().Y.Min);
    draw_heads(style, model);
    if (ImPlot::IsPlotHovered() && !model.curves.empty()) {
        const double v = ImPlot::GetPlotMousePos().x;
        const double at = std::clamp(v, 1.0, static_cast<double>(model.vocab_size));
        const double coverage = coverage_at(state.index.all(), static_cast<int>(at));
        ImPlot::Annotation(at, 100 * coverage, to_vec(style.colours.raised), {12, 14}, true,
                           "%.0f tokens: %.1f %%", at, 100 * coverage);
    }
    ImPlot::EndPlot();
}

void draw_tail_plot(PanelContext& context, const CoverageModel& model, float height, bool fit) {
    const Style& style = context.style;
    if (!ImPlot::BeginPlot("##tail", {-1, height}, plot_flags | ImPlotFlags_NoLegend)) return;
    double max_tokens = 1;
    for (const RankBin& bin : model.tail) max_tokens = std::max(max_tokens, static_cast<double>(bin.tokens));
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxes("frequency rank of the emitted token", "tokens", 0, ImPlotAxisFlags_AutoFit);
    ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
    ImPlot::SetupAxisFormat(ImAxis_X1, format_rank);
    ImPlot::SetupAxisLimits(ImAxis_X1, 1, model.vocab_size * 1.4, when);
    ImPlot::SetupAxisLimits(ImAxis_Y1, 0, max_tokens * 1.1, ImPlotCond_Always);
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

/// Draws each head's coverage by round: thick lines for dynamic heads, thin lines for fixed shortlists.
void draw_round_plot(const Style& style, const CoverageModel& model, float height, bool fit) {
    if (!ImPlot::BeginPlot("##rounds", {-1, height}, curve_flags(style, height))) return;
    double last = 2, low = 1;
    for (const RoundCoverage& head : model.rounds) {
        if (head.round.empty()) continue;
        last = std::max(last, head.round.back());
        low = std::min(low, *std::min_element(head.coverage.begin(), head.coverage.end()));
    }
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxes(fmt::format("round (mean of the last {})", coverage_window).c_str(), "covered, %");
    ImPlot::SetupAxesLimits(1, last, std::max(0.0, 100 * low - 5), 102, when);
    ImPlot::SetupLegend(ImPlotLocation_SouthEast);
    for (const RoundCoverage& head : model.rounds) {
        std::vector<double> percent;
        for (const double value : head.coverage) percent.push_back(100 * value);
        ImPlot::PlotLine(head.label.c_str(), head.round.data(), percent.data(),
                         static_cast<int>(percent.size()),
                         {ImPlotProp_LineColor, to_vec(data_colour(head.rgb, style.theme)),
                          ImPlotProp_LineWeight, head.is_dynamic ? 2.0f : 1.0f});
    }
    ImPlot::EndPlot();
}

void draw_caption(const Style& style, CoverageState& state, bool picture) {
    const CoverageModel& model = state.model;
    std::string text;
    if (model.min_v_for_99 > 0) text = fmt::format("99 % coverage: top {} tokens", model.min_v_for_99);
    if (model.unranked > 0)
        text += fmt::format("{}unranked tokens: {}", text.empty() ? "" : "; ", model.unranked);
    if (!model.ranking_source.empty())
        text += fmt::format("{}ranking: {}", text.empty() ? "" : "; ", model.ranking_source);
    if (picture) return ImGui::TextUnformatted(text.c_str());
    const float switches = (model.curves.size() > 1 ? 12.5f : 6.5f) * style.em;
    draw_cut_text(text, std::max(4 * style.em, ImGui::GetContentRegionAvail().x - switches));
    show_tooltip(style,
                 text +
                     (model.ranking_heads.empty()
                          ? std::string()
                          : "\nHeads that keep the first tokens of a ranking: " + model.ranking_heads) +
                     (model.min_v_for_99 > 0 ? "\nThis many tokens from the start of the ranking cover "
                                               "99 % of the emitted tokens."
                                             : "") +
                     "\nGrey curve: the best possible ranking for this text; no fixed "
                     "shortlist of the same size covers more. Stars: context-dependent shortlists.");
    ImGui::SameLine();
    const float room = ImGui::GetContentRegionAvail().x - switches;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    ImGui::Checkbox("rounds", &state.by_round);
    show_tooltip(style, "Lower plot: coverage by round instead of emitted tokens by rank");
    if (model.curves.size() <= 1) return;
    ImGui::SameLine();
    ImGui::Checkbox("categories", &state.by_category);
}

}  // namespace

void draw_coverage(PanelContext& context) {
    CoverageState& state = context.panel_state.get<CoverageState>();
    const Style& style = context.style;
    const std::uint64_t key =
        static_cast<std::uint64_t>(context.ui.run_id) * 1000003u + context.ui.round.value_or(~std::size_t{0});
    state.rebuild.update(context, key, [&] {
        state.index.update(context.snapshot, context.ui.run_id);
        state.model = build_coverage(context.snapshot, state.index, context.ui.round);
    });
    const CoverageModel& model = state.model;
    if (!model.empty_text.empty()) return draw_empty_text(style, model.empty_text);
    if (!model.ranking_text.empty()) return draw_empty_text(style, model.ranking_text);
    const bool fit = context.ui.fit_requested || state.fitted_run != context.ui.run_id;
    state.fitted_run = context.ui.run_id;
    draw_caption(style, state, context.picture);
    const float room = ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ItemSpacing.y;
    draw_coverage_plot(context, state, 0.6f * room, fit);
    if (state.by_round)
        draw_round_plot(style, model, 0.4f * room, fit);
    else
        draw_tail_plot(context, model, 0.4f * room, fit);
}

}  // namespace draftscope
