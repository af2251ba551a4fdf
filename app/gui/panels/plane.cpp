#include "app/gui/models/plane.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "app/gui/panels/rebuild.h"
#include "capture/head_colours.h"

namespace draftscope {
namespace {

struct PlaneMemory {
    Rebuild rebuild;
    PlaneModel model;
    std::vector<PublishedGroup> groups;
    int group = -1;  ///< of published results; -1 = first with a pair
    bool published = true;
    RowId fitted_run = -1;
};

std::uint32_t colour_of(const PanelContext& context, std::string_view head) {
    return data_colour(head_colour(head), context.style.theme);
}

bool has_pairs(const PublishedGroup& group) {
    return std::any_of(group.rows.begin(), group.rows.end(),
                       [](const PublishedResult* row) { return row->nu && row->rho_tau; });
}

PlaneWindow first_window(const PlaneMemory& memory) {
    PlaneWindow window{0, 1.12, 0.72, 1.06};
    for (const PlanePoint& point : memory.model.points) {
        // Wide intervals are cut at the border rather than pressing the points together.
        const double low = point.rho_interval ? std::max(point.rho_interval->low, 0.6) : point.rho_tau;
        const double high = point.rho_interval ? std::min(point.rho_interval->high, 1.2) : point.rho_tau;
        window.rho_min = std::min({window.rho_min, low - 0.04, point.rho_tau - 0.04});
        window.rho_max = std::max({window.rho_max, high + 0.04, point.rho_tau + 0.04});
        const double cost = point.nu_interval ? std::min(point.nu_interval->high, 1.3) : point.nu;
        window.nu_max = std::max({window.nu_max, cost + 0.08, point.nu + 0.08});
    }
    window.rho_min = std::max(window.rho_min, 0.0);
    return window;
}

void draw_iso_lines(const Style& style, double kappa) {
    const ImPlotRect limits = ImPlot::GetPlotLimits();
    const PlaneWindow window{limits.X.Min, limits.X.Max, limits.Y.Min, limits.Y.Max};
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect();
    // Below the break-even line the full head is faster.
    const ImVec2 shade[] = {ImPlot::PlotToPixels(window.nu_min, iso_rho_tau(1, window.nu_min, kappa)),
                            ImPlot::PlotToPixels(window.nu_max, iso_rho_tau(1, window.nu_max, kappa)),
                            ImPlot::PlotToPixels(window.nu_max, window.rho_min - 1),
                            ImPlot::PlotToPixels(window.nu_min, window.rho_min - 1)};
    list->AddConvexPolyFilled(shade, 4, to_im(style.colours.text_dim, 0.10f));
    const float size = 0.76f * style.em;
    for (const IsoLine& line : iso_lines(kappa, window)) {
        const ImVec2 a = ImPlot::PlotToPixels(line.nu[0], line.rho[0]);
        const ImVec2 b = ImPlot::PlotToPixels(line.nu[1], line.rho[1]);
        const bool even = std::abs(line.speedup - 1) < 1e-9;
        list->AddLine(a, b, to_im(even ? style.colours.text : style.colours.text_dim, even ? 0.85f : 0.4f),
                      even ? 2.0f : 1.0f);
        const std::string text =
            even ? std::string("x 1.00 break-even") : fmt::format("x {:.2f}", line.speedup);
        const ImVec2 extent = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str());
        // Under the line's right end, where the line is lowest over the text's width.
        const float left = b.x - extent.x - 4;
        const float line_y = b.x > a.x ? b.y + (a.y - b.y) * (b.x - left) / (b.x - a.x) : b.y;
        const ImVec2 at(left, std::max(line_y, b.y) + 2);
        if (left < ImPlot::GetPlotPos().x) continue;  // too short for its label
        list->AddText(style.ui, size, at, to_im(even ? style.colours.text : style.colours.text_dim),
                      text.c_str());
    }
    ImPlot::PopPlotClipRect();
}

void mark(ImDrawList* list, const PlanePoint& point, ImVec2 at, float em, ImU32 colour, ImU32 ground) {
    const bool live = point.mode == HeadMode::drive;
    const float r = live ? 0.5f * em : 0.4f * em;
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
    const ImVec2 points[] = {{at.x, at.y - r}, {at.x + r, at.y}, {at.x, at.y + r}, {at.x - r, at.y}};
    list->AddConvexPolyFilled(points, 4, point.estimate ? ground : colour);
    list->AddPolyline(points, 4, colour, 2.0f, ImDrawFlags_Closed);
}

void intervals(ImDrawList* list, const PlanePoint& point, ImU32 colour) {
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

std::string speedup_text(const Estimate& speedup) {
    if (!speedup.interval) return fmt::format("x {:.3f}", speedup.value);
    return fmt::format("x {:.3f} [{:.3f}, {:.3f}]", speedup.value, speedup.interval->low,
                       speedup.interval->high);
}

void point_tooltip(const PlanePoint& point, double kappa) {
    if (!ImGui::BeginTooltip()) return;
    ImGui::TextUnformatted(point.label.c_str());
    ImGui::Text("nu %.3f   rho_tau %.3f   tau %.2f   (%lld rounds)", point.nu, point.rho_tau, point.tau,
                static_cast<long long>(point.rounds));
    if (point.rho_interval && point.nu_interval)
        ImGui::Text("rho_tau 95 %% [%.3f, %.3f], nu [%.3f, %.3f]", point.rho_interval->low,
                    point.rho_interval->high, point.nu_interval->low, point.nu_interval->high);
    ImGui::Text("predicted %s of the full head at kappa %.2f", speedup_text(point.predicted).c_str(), kappa);
    if (point.measured && !point.reference) {
        ImGui::Text("measured %s", speedup_text(*point.measured).c_str());
        if (point.unexplained) ImGui::Text("unexplained %+.3f", point.unexplained->value);
    }
    if (!point.reference)
        ImGui::Text("breaks even at rho_tau %.3f%s", point.break_even_rho_tau,
                    point.break_even_nu && *point.break_even_nu > 0
                        ? fmt::format(" or nu {:.2f}", *point.break_even_nu).c_str()
                        : "");
    if (point.active_rows > 0) ImGui::Text("%.0f active rows", point.active_rows);
    if (!point.reads_text.empty()) ImGui::TextUnformatted(point.reads_text.c_str());
    if (point.estimate) ImGui::TextUnformatted("estimate: from calibration or aligned rounds alone");
    ImGui::TextUnformatted("click: use this head in the next run");
    ImGui::EndTooltip();
}

bool near(ImVec2 a, float reach) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    return std::abs(a.x - mouse.x) <= reach && std::abs(a.y - mouse.y) <= reach;
}

void label(const Style& style, ImDrawList* list, ImVec2 at, const std::string& text, ImU32 colour) {
    const ImVec2 extent = style.ui_bold->CalcTextSizeA(0.9f * style.em, 1e9f, 0, text.c_str());
    const ImVec2 plot = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
    ImVec2 corner(at.x + 0.8f * style.em, at.y - 1.2f * style.em);
    if (corner.x + extent.x > plot.x + size.x) corner.x = at.x - extent.x - 0.8f * style.em;
    list->AddRectFilled({corner.x - 3, corner.y - 1}, {corner.x + extent.x + 3, corner.y + extent.y + 1},
                        to_im(style.colours.panel, 0.85f), 2);
    list->AddText(style.ui_bold, 0.9f * style.em, corner, colour, text.c_str());
}

void draw_published(const PanelContext& context) {
    const Style& style = context.style;
    ImDrawList* list = ImPlot::GetPlotDrawList();
    const float r = 0.28f * style.em;
    const PublishedResult* hovered = nullptr;
    ImPlot::PushPlotClipRect();
    for (const PublishedResult& result : published_results()) {
        if (!result.nu || !result.rho_tau) continue;
        const ImVec2 at = ImPlot::PlotToPixels(*result.nu, *result.rho_tau);
        list->AddTriangle({at.x, at.y - 1.2f * r}, {at.x + r, at.y + 0.8f * r}, {at.x - r, at.y + 0.8f * r},
                          to_im(colour_of(context, result.head)), 1.6f);
        if (near(at, 1.3f * r)) hovered = &result;
    }
    ImPlot::PopPlotClipRect();
    if (hovered == nullptr || !ImPlot::IsPlotHovered() || !ImGui::BeginTooltip()) return;
    for (const std::string& line : describe_published(*hovered)) ImGui::TextUnformatted(line.c_str());
    ImGui::EndTooltip();
}

void draw_points(PanelContext& context, const PlaneModel& model) {
    const Style& style = context.style;
    ImDrawList* list = ImPlot::GetPlotDrawList();
    ImPlot::PushPlotClipRect();
    for (const PlanePoint& point : model.points)
        intervals(list, point, to_im(colour_of(context, point.head)));
    ImPlot::PopPlotClipRect();
    ImPlot::PushPlotClipRect(style.em);
    const PlanePoint* hovered = nullptr;
    for (const PlanePoint& point : model.points) {
        const ImVec2 at = ImPlot::PlotToPixels(point.nu, point.rho_tau);
        const ImU32 colour = to_im(colour_of(context, point.head));
        mark(list, point, at, style.em, colour, to_im(style.colours.panel));
        if (point.mode == HeadMode::drive || point.reference)
            label(style, list, at, point.reference ? "full" : point.head, to_im(style.colours.text));
        if (near(at, 0.6f * style.em)) hovered = &point;
    }
    ImPlot::PopPlotClipRect();
    if (hovered == nullptr || !ImPlot::IsPlotHovered()) return;
    point_tooltip(*hovered, model.kappa_shown);
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) context.config.head = hovered->head;
}

void draw_plot(PanelContext& context, PlaneMemory& memory, ImVec2 size, bool fit) {
    constexpr ImPlotFlags flags =
        ImPlotFlags_NoMenus | ImPlotFlags_NoBoxSelect | ImPlotFlags_NoMouseText | ImPlotFlags_NoLegend;
    if (!ImPlot::BeginPlot("##plane", size, flags)) return;
    const PlaneWindow window = first_window(memory);
    const ImPlotCond when = fit ? ImPlotCond_Always : ImPlotCond_Once;
    ImPlot::SetupAxis(ImAxis_X1, "nu: head cost / full", ImPlotAxisFlags_NoGridLines);
    ImPlot::SetupAxis(ImAxis_Y1, "rho_tau: tau / full", ImPlotAxisFlags_NoGridLines);
    ImPlot::SetupAxisLimits(ImAxis_X1, window.nu_min, window.nu_max, when);
    ImPlot::SetupAxisLimits(ImAxis_Y1, window.rho_min, window.rho_max, when);
    ImPlot::PlotDummy("plane");
    draw_iso_lines(context.style, memory.model.kappa_shown);
    if (memory.published) draw_published(context);
    draw_points(context, memory.model);
    ImPlot::EndPlot();
}

struct BarRow {
    std::string label, value, head;
    double tau = 0;
    bool own = false, hollow = false;
    const PublishedResult* published = nullptr;
};

std::vector<BarRow> bar_rows(const PlaneMemory& memory) {
    std::vector<BarRow> rows;
    for (const TauBar& bar : memory.model.bars)
        rows.push_back({bar.label,
                        bar.predicted ? fmt::format("{:.2f}   x {:.2f}", bar.tau, *bar.predicted)
                                      : fmt::format("{:.2f}", bar.tau),
                        bar.head, bar.tau, true, bar.estimate, nullptr});
    if (!memory.published || memory.group < 0) return rows;
    for (const PublishedResult* row : memory.groups[static_cast<std::size_t>(memory.group)].rows) {
        if (!row->tau) continue;
        rows.push_back({fmt::format("{} {}", row->head, row->config),
                        row->speedup_vs_full
                            ? fmt::format("{:.2f}   x {:.2f}", *row->tau, *row->speedup_vs_full)
                            : fmt::format("{:.2f}", *row->tau),
                        std::string(row->head), *row->tau, false, false, row});
    }
    return rows;
}

void draw_bar_row(const PanelContext& context, const BarRow& row, double most) {
    const Style& style = context.style;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (!row.own) ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
    ImGui::TextUnformatted(row.label.c_str());
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float h = ImGui::GetTextLineHeight(), width = ImGui::GetContentRegionAvail().x;
    const float length = width * static_cast<float>(row.tau / most);
    const ImU32 colour = to_im(colour_of(context, row.head), row.own ? 1.0f : 0.6f);
    const ImVec2 min(at.x, at.y + 0.2f * h), max(at.x + length, at.y + 0.8f * h);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (row.own && !row.hollow)
        list->AddRectFilled(min, max, colour, 2);
    else
        list->AddRect(min, max, colour, 2, 1.5f);
    ImGui::Dummy({width, h});
    if (row.published != nullptr && ImGui::IsItemHovered() && ImGui::BeginTooltip()) {
        for (const std::string& line : describe_published(*row.published))
            ImGui::TextUnformatted(line.c_str());
        ImGui::EndTooltip();
    }
    ImGui::TableNextColumn();
    const float room = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(row.value.c_str()).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    ImGui::TextUnformatted(row.value.c_str());
    if (!row.own) ImGui::PopStyleColor();
}

void draw_bars(PanelContext& context, PlaneMemory& memory, ImVec2 size) {
    const Style& style = context.style;
    if (!ImGui::BeginChild("bars", size)) return ImGui::EndChild();
    ImGui::PushFont(nullptr, 0.88f * ImGui::GetStyle().FontSizeBase);
    const std::vector<BarRow> rows = bar_rows(memory);
    double most = 1;
    for (const BarRow& row : rows) most = std::max(most, row.tau);
    if (ImGui::BeginTable("tau", 3, ImGuiTableFlags_SizingStretchProp)) {
        ImGui::TableSetupColumn("head", ImGuiTableColumnFlags_WidthFixed);
        ImGui::TableSetupColumn("bar", ImGuiTableColumnFlags_WidthStretch);
        ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthFixed);
        ImGui::TableNextRow();
        ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
        for (const char* name : {"head", "tau (tokens per round)", "tau   x full"}) {
            ImGui::TableNextColumn();
            ImGui::TextUnformatted(name);
        }
        ImGui::PopStyleColor();
        for (const BarRow& row : rows) draw_bar_row(context, row, most);
        ImGui::EndTable();
    }
    ImGui::PopFont();
    ImGui::EndChild();
}

/// Which published results are shown beside the run's.
void choose_published(const Style& style, PlaneMemory& memory) {
    ImGui::Checkbox("published", &memory.published);
    if (ImGui::IsItemHovered())
        ImGui::SetTooltip("results of the papers: triangles in the plane, outlined bars below");
    ImGui::SameLine();
    ImGui::BeginDisabled(!memory.published);
    ImGui::SetNextItemWidth(std::max(8 * style.em, ImGui::GetContentRegionAvail().x));
    const PublishedGroup& shown = memory.groups[static_cast<std::size_t>(memory.group)];
    if (ImGui::BeginCombo("##group", shown.name.c_str())) {
        for (std::size_t i = 0; i < memory.groups.size(); ++i)
            if (ImGui::Selectable(memory.groups[i].name.c_str(), static_cast<int>(i) == memory.group))
                memory.group = static_cast<int>(i);
        ImGui::EndCombo();
    }
    ImGui::EndDisabled();
}

void controls(PanelContext& context, PlaneMemory& memory) {
    const Style& style = context.style;
    if (!context.picture)
        choose_published(style, memory);
    else if (memory.published)
        ImGui::TextUnformatted(
            ("Published: " + memory.groups[static_cast<std::size_t>(memory.group)].name).c_str());
    ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
    const std::string& intervals_text = memory.model.interval_text;
    ImGui::TextWrapped("%s%s%s", memory.model.kappa_text.c_str(), intervals_text.empty() ? "" : "; ",
                       intervals_text.c_str());
    ImGui::PopStyleColor();
    if (memory.model.missing_text.empty()) return;
    ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.warn));
    ImGui::TextWrapped("%s", memory.model.missing_text.c_str());
    ImGui::PopStyleColor();
}

}  // namespace

void draw_plane(PanelContext& context) {
    PlaneMemory& memory = context.memory.get<PlaneMemory>();
    const Style& style = context.style;
    const auto key = static_cast<std::uint64_t>(context.ui.run_id);
    if (memory.rebuild.needed(context, key))
        memory.rebuild.run(context, key,
                           [&] { memory.model = build_plane(context.snapshot, context.ui.run_id); });
    if (memory.groups.empty()) {
        memory.groups = published_groups();
        const auto with_pairs = std::find_if(memory.groups.begin(), memory.groups.end(), has_pairs);
        memory.group =
            with_pairs == memory.groups.end() ? 0 : static_cast<int>(with_pairs - memory.groups.begin());
    }
    controls(context, memory);
    // The view fits once a run has its first point, then it is the user's.
    const bool first_point = memory.fitted_run != context.ui.run_id && !memory.model.points.empty();
    if (first_point) memory.fitted_run = context.ui.run_id;
    const bool fit = context.ui.fit_requested || first_point;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    if (room.x > 1.7f * room.y) {
        draw_plot(context, memory, {0.6f * room.x, room.y}, fit);
        ImGui::SameLine();
        draw_bars(context, memory, {0, room.y});
        return;
    }
    const float rows = static_cast<float>(memory.model.bars.size() + (memory.published ? 3 : 1));
    if (room.y < 15 * style.em) return draw_plot(context, memory, room, fit);
    const float bars = std::clamp((rows + 1) * 1.35f * style.em, 4.5f * style.em, 0.3f * room.y);
    draw_plot(context, memory, {room.x, room.y - bars - ImGui::GetStyle().ItemSpacing.y}, fit);
    draw_bars(context, memory, {0, 0});
}

}  // namespace draftscope
