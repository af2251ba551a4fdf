#include "app/gui/models/plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "capture/head_traits.h"

namespace draftscope {
namespace {

struct PlaneState {
    RebuildThrottle rebuild;
    PlaneModel model;
    PlaneOthers others;
    std::vector<PublishedGroup> groups;
    std::size_t group = 0;
    bool published = true;
    bool other_runs = true;
    RowId fitted_run = -1;
    PlaneView view;
    ImVec2 plot_size{0, 0};
};

std::uint32_t published_rgb(const PublishedResult& result) {
    return published_head_traits(result.head).rgb;
}

bool has_pairs(const PublishedGroup& group) {
    return std::any_of(group.rows.begin(), group.rows.end(),
                       [](const PublishedResult* row) { return row->nu && row->rho_tau; });
}

bool is_even(const IsoLine& line) {
    return std::abs(line.speedup - 1) < 1e-9;
}

/// Writes the speed-up below the line from `a` to `b`, as far right as it fits.
void label_line(const Style& style, const IsoLine& line, ImVec2 a, ImVec2 b, LabelPlacer& places) {
    const float size = 0.76f * style.em;
    const std::string text =
        is_even(line) ? std::string("x 1.00 break-even") : fmt::format("x {:.2f}", line.speedup);
    const ImVec2 extent = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str());
    std::vector<LabelBox> candidates;
    for (float right = b.x - 4; right - extent.x > a.x + 4; right -= extent.x / 2) {
        // The line descends to the left: it is lowest at the label's left end.
        const float left = right - extent.x;
        const float y = std::max(b.y, b.y + (a.y - b.y) * (b.x - left) / (b.x - a.x)) + 2;
        candidates.push_back({left, y, right, y + extent.y});
    }
    if (const auto box = places.place(candidates))
        ImPlot::GetPlotDrawList()->AddText(style.ui, size, {box->left, box->top},
                                           to_im(is_even(line) ? style.colours.text : style.colours.text_dim),
                                           text.c_str());
}

void draw_iso_lines(const Style& style, double kappa, LabelPlacer& places) {
    const ImPlotRect limits = ImPlot::GetPlotLimits();
    const PlaneWindow window{limits.X.Min, limits.X.Max, limits.Y.Min, limits.Y.Max};
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect();
    // Shades the area below the break-even line, where the full head is faster.
    const ImVec2 shade[] = {ImPlot::PlotToPixels(window.nu_min, iso_rho_tau(1, window.nu_min, kappa)),
                            ImPlot::PlotToPixels(window.nu_max, iso_rho_tau(1, window.nu_max, kappa)),
                            ImPlot::PlotToPixels(window.nu_max, window.rho_min - 1),
                            ImPlot::PlotToPixels(window.nu_min, window.rho_min - 1)};
    list->AddConvexPolyFilled(shade, 4, to_im(style.colours.text_dim, 0.10f));
    for (const IsoLine& line : iso_lines(kappa, window)) {
        const ImVec2 a = ImPlot::PlotToPixels(line.nu[0], line.rho[0]);
        const ImVec2 b = ImPlot::PlotToPixels(line.nu[1], line.rho[1]);
        const bool even = is_even(line);
        list->AddLine(a, b, to_im(even ? style.colours.text : style.colours.text_dim, even ? 0.85f : 0.4f),
                      even ? 2.0f : 1.0f);
        label_line(style, line, a, b, places);
    }
    ImPlot::PopPlotClipRect();
}

void draw_mark(ImDrawList* list, const PlanePoint& point, ImVec2 at, float em, ImU32 colour, ImU32 ground) {
    const bool live = point.mode == HeadMode::drive;
    const float r = (live ? 0.5f * em : 0.4f * em) * (point.run.empty() ? 1.0f : 0.75f);
    if (point.reference) {
        list->AddRectFilled({at.x - r, at.y - r}, {at.x + r, at.y + r}, point.estimate ? ground : colour);
        list->AddRect({at.x - r, at.y - r}, {at.x + r, at.y + r}, colour, 0, 2);
        return;
    }
    if (live) {
        list->AddCircleFilled(at, r, point.estimate ? ground : colour);
        list->AddCircle(at, r, colour, 0, 2.5f);
        return;
    }
    draw_diamond(list, at, r, point.estimate ? ground : colour, colour, 2.0f);
}

void draw_intervals(ImDrawList* list, const PlanePoint& point, ImU32 colour) {
    const auto bar = [&](double x0, double y0, double x1, double y1) {
        const ImVec2 a = ImPlot::PlotToPixels(x0, y0), b = ImPlot::PlotToPixels(x1, y1);
        list->AddLine(a, b, colour, 1.5f);
        const ImVec2 cap = std::abs(a.x - b.x) > std::abs(a.y - b.y) ? ImVec2(0, 4) : ImVec2(4, 0);
        for (const ImVec2 end : {a, b})
            list->AddLine({end.x - cap.x, end.y - cap.y}, {end.x + cap.x, end.y + cap.y}, colour, 1.5f);
    };
    if (point.rho_interval) bar(point.nu, point.rho_interval->low, point.nu, point.rho_interval->high);
    if (point.nu_interval) bar(point.nu_interval->low, point.rho_tau, point.nu_interval->high, point.rho_tau);
}

void show_point_tooltip(const PlanePoint& point, double kappa) {
    if (!ImGui::BeginTooltip()) return;
    ImGui::TextUnformatted(point.label.c_str());
    if (!point.run.empty()) ImGui::TextUnformatted(point.run.c_str());
    const std::string tau =
        point.tau > 0 ? fmt::format("   tau {:.2f}, unclipped {:.2f}", point.tau, point.tau_unclipped) : "";
    ImGui::Text("nu %.3f   rho_tau %.3f%s (rounds of this head: %lld)", point.nu, point.rho_tau, tau.c_str(),
                static_cast<long long>(point.rounds));
    if (point.rho_interval && point.nu_interval)
        ImGui::Text("rho_tau 95 %% [%.3f, %.3f], nu [%.3f, %.3f]", point.rho_interval->low,
                    point.rho_interval->high, point.nu_interval->low, point.nu_interval->high);
    ImGui::Text("predicted over full head x %s at kappa %.2f", estimate_text(point.predicted, 3).c_str(),
                point.kappa);
    if (!point.at_shown_kappa) ImGui::Text("the lines are drawn at kappa %.2f", kappa);
    if (point.measured && !point.reference) {
        ImGui::Text("measured over full head x %s", estimate_text(*point.measured, 3).c_str());
        if (point.unexplained) ImGui::Text("measured - predicted %+.3f", point.unexplained->value);
    }
    if (!point.reference)
        ImGui::Text("breaks even at rho_tau %.3f%s", point.break_even_rho_tau,
                    point.break_even_nu && *point.break_even_nu > 0
                        ? fmt::format(" or nu {:.2f}", *point.break_even_nu).c_str()
                        : "");
    if (point.active_rows > 0) ImGui::TextUnformatted(point.size_text.c_str());
    if (!point.reads_text.empty()) ImGui::TextUnformatted(point.reads_text.c_str());
    if (!point.alpha_text.empty()) ImGui::TextUnformatted(point.alpha_text.c_str());
    if (point.path_candidates) {
        ImGui::PushTextWrapPos(36 * ImGui::GetFontSize());
        ImGui::TextUnformatted(fmt::format("estimate: {}", replay_estimate_note).c_str());
        ImGui::PopTextWrapPos();
    } else if (point.estimate)
        ImGui::TextUnformatted("estimate from calibration or aligned rounds");
    ImGui::TextUnformatted("click: use this head for the next run");
    ImGui::EndTooltip();
}

bool near(ImVec2 a, float reach) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    return std::abs(a.x - mouse.x) <= reach && std::abs(a.y - mouse.y) <= reach;
}

/// A head's name and its place.
struct PointLabel {
    LabelBox box;
    const char* text = nullptr;
    bool own = true;
};

constexpr float label_size = 0.9f;  ///< relative to the body text

/// Reserves space for the marks, then for the names of the driving head and the reference. The heads of other
/// runs get names where there is room.
std::vector<PointLabel> place_labels(const Style& style, const PlaneModel& model, bool published,
                                     LabelPlacer& places) {
    const float r = 0.65f * style.em, small = 0.34f * style.em;
    if (published)
        for (const PublishedResult& result : published_results()) {
            if (!result.nu || !result.rho_tau) continue;
            const ImVec2 at = ImPlot::PlotToPixels(*result.nu, *result.rho_tau);
            places.take({at.x - small, at.y - small, at.x + small, at.y + small});
        }
    std::vector<ImVec2> marks;
    for (const PlanePoint& point : model.points) {
        marks.push_back(ImPlot::PlotToPixels(point.nu, point.rho_tau));
        places.take({marks.back().x - r, marks.back().y - r, marks.back().x + r, marks.back().y + r});
        if (point.rho_interval)
            places.take({marks.back().x - 4, ImPlot::PlotToPixels(0, point.rho_interval->high).y,
                         marks.back().x + 4, ImPlot::PlotToPixels(0, point.rho_interval->low).y});
        if (point.nu_interval)
            places.take({ImPlot::PlotToPixels(point.nu_interval->low, 0).x, marks.back().y - 4,
                         ImPlot::PlotToPixels(point.nu_interval->high, 0).x, marks.back().y + 4});
    }
    std::vector<PointLabel> labels;
    for (std::size_t i = model.points.size(); i-- > 0;) {
        const PlanePoint& point = model.points[i];
        if (point.mode != HeadMode::drive && !point.reference) continue;
        const bool own = point.run.empty();
        const char* text = own ? point.head.c_str() : point.label.c_str();
        const ImVec2 extent = style.ui_bold->CalcTextSizeA(label_size * style.em, 1e9f, 0, text);
        const auto around =
            boxes_around(marks[i].x, marks[i].y, 0.75f * style.em, extent.x + 6, extent.y + 2);
        const auto box = places.place(around, own);
        if (box) labels.push_back({*box, text, own});
    }
    return labels;
}

void draw_labels(const Style& style, const std::vector<PointLabel>& labels) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    for (const PointLabel& label : labels) {
        list->AddRectFilled({label.box.left, label.box.top}, {label.box.right, label.box.bottom},
                            to_im(style.colours.panel, 0.85f), 2);
        list->AddText(label.own ? style.ui_bold : style.ui, label_size * style.em,
                      {label.box.left + 3, label.box.top + 1},
                      to_im(label.own ? style.colours.text : style.colours.text_dim), label.text);
    }
}

/// Draws a published result: filled if the lines use its kappa, otherwise hollow and paler.
void draw_published_mark(const Style& style, ImDrawList* list, ImVec2 at, std::uint32_t rgb, bool at_kappa) {
    const float r = 0.28f * style.em;
    const ImVec2 a(at.x, at.y - 1.2f * r), b(at.x + r, at.y + 0.8f * r), c(at.x - r, at.y + 0.8f * r);
    if (at_kappa)
        list->AddTriangleFilled(a, b, c, to_im(rgb));
    else
        list->AddTriangle(a, b, c, to_im(rgb, 0.6f), std::max(1.0f, 0.07f * style.em));
}

/// `more`: a further line; "" = none.
void show_published_tooltip(const PublishedResult& result, const std::string& more) {
    if (!ImGui::BeginTooltip()) return;
    for (const std::string& line : describe_published(result)) ImGui::TextUnformatted(line.c_str());
    if (!more.empty()) ImGui::TextUnformatted(more.c_str());
    ImGui::EndTooltip();
}

void draw_published(const PanelContext& context, const PlaneModel& model) {
    const Style& style = context.style;
    const PublishedResult* hovered = nullptr;
    ImPlot::PushPlotClipRect();
    for (const PublishedResult& result : published_results()) {
        if (!result.nu || !result.rho_tau) continue;
        const ImVec2 at = ImPlot::PlotToPixels(*result.nu, *result.rho_tau);
        draw_published_mark(style, ImPlot::GetPlotDrawList(), at,
                            data_colour(published_rgb(result), style.theme),
                            is_at_shown_kappa(result, model));
        if (near(at, 0.36f * style.em)) hovered = &result;
    }
    ImPlot::PopPlotClipRect();
    if (hovered != nullptr && ImPlot::IsPlotHovered())
        show_published_tooltip(*hovered, published_kappa_text(*hovered, model));
}

void draw_points(PanelContext& context, const PlaneModel& model) {
    const Style& style = context.style;
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect();
    const auto colour_of = [&](const PlanePoint& point) {
        return to_im(data_colour(point.rgb, style.theme), point.at_shown_kappa ? 1.0f : 0.5f);
    };
    for (const PlanePoint& point : model.points) draw_intervals(list, point, colour_of(point));
    ImPlot::PopPlotClipRect();
    ImPlot::PushPlotClipRect(style.em);
    const PlanePoint* hovered = nullptr;
    for (const PlanePoint& point : model.points) {
        const ImVec2 at = ImPlot::PlotToPixels(point.nu, point.rho_tau);
        draw_mark(list, point, at, style.em, colour_of(point), to_im(style.colours.panel));
        if (near(at, 0.6f * style.em)) hovered = &point;
    }
    ImPlot::PopPlotClipRect();
    if (hovered == nullptr || !ImPlot::IsPlotHovered()) return;
    show_point_tooltip(*hovered, model.kappa_shown);
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) context.config.head = hovered->head;
}

void draw_plot(PanelContext& context, PlaneState& state, ImVec2 size, bool fit) {
    if (!ImPlot::BeginPlot("##plane", size, plot_flags | ImPlotFlags_NoLegend)) return;
    const float em = context.style.em;
    const ImVec2 room(std::max(state.plot_size.x, 8 * em), std::max(state.plot_size.y, 8 * em));
    const bool set = state.view.follow(state.model.points, 0.8 * em / room.x, 0.8 * em / room.y, fit);
    const PlaneWindow& window = state.view.window();
    const ImPlotCond when = set ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxes("nu: head cost / full", "rho_tau: tau / full", ImPlotAxisFlags_NoGridLines,
                      ImPlotAxisFlags_NoGridLines);
    ImPlot::SetupAxesLimits(window.nu_min, window.nu_max, window.rho_min, window.rho_max, when);
    ImPlot::PlotDummy("plane");
    const ImVec2 at = ImPlot::GetPlotPos(), extent = ImPlot::GetPlotSize();
    LabelPlacer places({at.x, at.y, at.x + extent.x, at.y + extent.y});
    const std::vector<PointLabel> labels = place_labels(context.style, state.model, state.published, places);
    draw_iso_lines(context.style, state.model.kappa_shown, places);
    if (state.published) draw_published(context, state.model);
    draw_labels(context.style, labels);
    draw_points(context, state.model);
    const ImPlotRect limits = ImPlot::GetPlotLimits();
    state.view.show({limits.X.Min, limits.X.Max, limits.Y.Min, limits.Y.Max}, state.model.points);
    state.plot_size = extent;
    ImPlot::EndPlot();
}

/// The bars of the model, then those of the published group.
std::vector<TauBar> all_bars(const PlaneState& state) {
    std::vector<TauBar> bars = state.model.bars;
    if (!state.published) return bars;
    for (const PublishedResult* row : state.groups[state.group].rows)
        if (row->tau)
            bars.push_back({.label = published_label(*row),
                            .tau = *row->tau,
                            .predicted = row->speedup_vs_full,
                            .rgb = published_rgb(*row),
                            .published = row});
    return bars;
}

void draw_bar(const PanelContext& context, const TauBar& row, double max_tau) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float h = ImGui::GetTextLineHeight(), width = ImGui::GetContentRegionAvail().x;
    const float length = width * static_cast<float>(row.tau / max_tau);
    const bool own = row.published == nullptr;
    const ImU32 colour = to_im(data_colour(row.rgb, context.style.theme), own ? 1.0f : 0.6f);
    const ImVec2 min(at.x, at.y + 0.2f * h), max(at.x + length, at.y + 0.8f * h);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (own && !row.estimate)
        list->AddRectFilled(min, max, colour, 2);
    else
        list->AddRect(min, max, colour, 2, 1.5f);
    ImGui::Dummy({width, h});
    if (!own && ImGui::IsItemHovered()) show_published_tooltip(*row.published, "");
}

/// `bar`: draw a bar between name and numbers.
void draw_bar_row(const PanelContext& context, const TauBar& row, double max_tau, bool bar) {
    const Style& style = context.style;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const bool dim = row.published != nullptr || row.other_run;
    const TextColour colour(dim ? style.colours.text_dim : style.colours.text);
    if (bar) {
        ImGui::TextUnformatted(row.label.c_str());
        ImGui::TableNextColumn();
        draw_bar(context, row, max_tau);
    } else {
        draw_cut_text(row.label);
    }
    draw_cell_right(row.predicted ? fmt::format("{:.2f}   x {:.2f}", row.tau, *row.predicted)
                                  : fmt::format("{:.2f}", row.tau));
}

void draw_bars(PanelContext& context, PlaneState& state, ImVec2 size) {
    const Style& style = context.style;
    if (!ImGui::BeginChild("bars", size)) return ImGui::EndChild();
    ImGui::PushFont(nullptr, 0.88f * ImGui::GetStyle().FontSizeBase);
    const std::vector<TauBar> bars = all_bars(state);
    double max_tau = 1;
    for (const TauBar& row : bars) max_tau = std::max(max_tau, row.tau);
    const bool bar = ImGui::GetContentRegionAvail().x > 22 * style.em;
    if (ImGui::BeginTable("tau", bar ? 3 : 2, table_flags | sorting_flags)) {
        // Without bars the names are cut rather than the numbers.
        ImGui::TableSetupColumn("head",
                                bar ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch);
        if (bar)
            ImGui::TableSetupColumn("tau (unclipped, as published)",
                                    ImGuiTableColumnFlags_WidthStretch | ImGuiTableColumnFlags_NoSort);
        ImGui::TableSetupColumn("tau   x full", ImGuiTableColumnFlags_WidthFixed | number_column);
        const auto keys = [&](std::size_t row) {
            std::vector<SortKey> out = {bars[row].label, bars[row].tau};
            if (bar) out.push_back(bars[row].tau);
            return out;
        };
        for (const std::size_t row : order_rows(draw_headings(), bars.size(), keys))
            draw_bar_row(context, bars[row], max_tau, bar);
        ImGui::EndTable();
    }
    ImGui::PopFont();
    ImGui::EndChild();
}

/// Draws the choice of published results.
void choose_published(const Style& style, PlaneState& state) {
    ImGui::Checkbox("published", &state.published);
    if (ImGui::IsItemHovered())
        ImGui::SetTooltip("Published results: triangles in the plane, outlined bars below");
    ImGui::SameLine();
    choose_group(style, state.groups, state.published, state.group);
}

/// Returns the kappa of the published results if it differs from that of the lines; else "".
std::string published_key(const PlaneModel& model) {
    for (const PublishedResult& result : published_results()) {
        if (!result.nu || !result.rho_tau) continue;
        if (std::string text = published_kappa_text(result, model); !text.empty()) return text;
    }
    return "";  // all results with both coordinates are from one paper
}

/// Draws that kappa with the mark of published results, in a picture.
void draw_published_key(const PanelContext& context, const PlaneModel& model) {
    const Style& style = context.style;
    const std::string text = published_key(model);
    if (text.empty()) return;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float h = ImGui::GetTextLineHeight();
    draw_published_mark(style, ImGui::GetWindowDrawList(), {at.x + 0.4f * style.em, at.y + 0.56f * h},
                        style.colours.text_dim, false);
    ImGui::Dummy({0.8f * style.em, h});
    ImGui::SameLine(0, 0.3f * style.em);
    draw_hint(style, text);
}

/// Draws kappa with a mark whose tooltip has the rest: intervals, the papers' kappa, how the softmax counts.
void draw_notes(const PanelContext& context, const PlaneState& state) {
    const PlaneModel& model = state.model;
    std::string notes = model.kappa_text;
    for (const std::string& more :
         {model.interval_text, state.published ? published_key(model) : std::string(), model.softmax_text})
        if (!more.empty()) notes += "\n" + more;
    draw_cut_text(model.kappa_text + "   (i)", 0, context.style.colours.text_dim);
    show_tooltip(context.style, notes);
}

void draw_controls(PanelContext& context, PlaneState& state) {
    const Style& style = context.style;
    if (!context.picture)
        choose_published(style, state);
    else if (state.published)
        ImGui::TextUnformatted(("Published: " + state.groups[state.group].name).c_str());
    if (!state.model.others_text.empty() || !state.other_runs) {
        if (!context.picture) {
            ImGui::Checkbox("other runs", &state.other_runs);
            show_tooltip(style,
                         "Heads of the other ended runs: of this capture, and of those open to compare.");
            if (!state.model.others_text.empty()) ImGui::SameLine();
        }
        if (!state.model.others_text.empty()) draw_hint(style, state.model.others_text);
    }
    const std::string& intervals_text = state.model.interval_text;
    if (context.picture) {
        draw_hint(style, state.model.kappa_text + (intervals_text.empty() ? "" : "; ") + intervals_text);
        if (state.published) draw_published_key(context, state.model);
    } else {
        draw_notes(context, state);
    }
    if (!state.model.missing_text.empty()) draw_wrapped(style.colours.warn, state.model.missing_text);
}

/// Returns a key of what the plane shows besides the capture's own changes.
std::uint64_t plane_key(const PanelContext& context, bool other_runs) {
    std::size_t key = std::hash<RowId>()(context.ui.run_id) * 2 + (other_runs ? 1 : 0);
    for (const auto& other : context.status.others) key = 31 * key + std::hash<const void*>()(other.get());
    return key;
}

}  // namespace

void draw_plane(PanelContext& context) {
    PlaneState& state = context.panel_state.get<PlaneState>();
    const Style& style = context.style;
    const std::uint64_t key = plane_key(context, state.other_runs);
    state.rebuild.update(context, key, [&] {
        state.model = build_plane(context.snapshot, context.ui.run_id);
        if (state.other_runs)
            state.others.add(state.model, context.snapshot, context.ui.run_id, context.status.others);
    });
    if (state.groups.empty()) {
        state.groups = published_groups();
        std::erase_if(state.groups, [](const PublishedGroup& group) {
            return std::ranges::none_of(group.rows,
                                        [](const PublishedResult* row) { return row->tau.has_value(); });
        });
        const auto with_pairs = std::ranges::find_if(state.groups, has_pairs);
        if (with_pairs != state.groups.end()) state.group = with_pairs - state.groups.begin();
    }
    draw_controls(context, state);
    // The view fits when a run gets its first point; then the user controls it.
    const bool first_point = state.fitted_run != context.ui.run_id && !state.model.points.empty();
    if (first_point) state.fitted_run = context.ui.run_id;
    const bool fit = context.ui.fit_requested || first_point;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    if (room.x > 1.7f * room.y && room.x > 44 * style.em) {
        draw_plot(context, state, {0.6f * room.x, room.y}, fit);
        ImGui::SameLine();
        draw_bars(context, state, {0, room.y});
        return;
    }
    const float rows = static_cast<float>(state.model.bars.size() + (state.published ? 3 : 1));
    if (room.y < 13 * style.em) return draw_plot(context, state, room, fit);
    const float bars = std::clamp((rows + 1) * 1.35f * style.em, 4.5f * style.em, 0.3f * room.y);
    draw_plot(context, state, {room.x, room.y - bars - ImGui::GetStyle().ItemSpacing.y}, fit);
    draw_bars(context, state, {0, 0});
}

}  // namespace draftscope
