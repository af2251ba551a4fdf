#include "app/gui/models/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "app/gui/models/cached_model.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {
namespace {

enum class SweepTab { front, curves, heat_map, list };

/// A drawn setting, in pixels.
struct SweepMark {
    std::size_t row = 0;
    ImVec2 at;
};

struct SweepState {
    std::shared_ptr<const SweepReport> shown;  ///< another one replaces the state, and thereby the models
    SweepSettings settings;                    ///< of `shown`
    SweepTab tab = SweepTab::front;
    int batch = 1;
    std::string parameter, x, y;        ///< of curves and heat map
    bool like_selected = false;         ///< curves keep the selected setting's other parameters
    bool one_per_head = false;          ///< as in SweepFilter; in pictures, which have less room
    std::optional<std::size_t> chosen;  ///< row
    int conversation = 1;
    std::vector<SweepMark> marks;  ///< of this frame, to click on
    std::vector<int> batches;
    CachedModel<SweepBatchModel, int> batch_model;                              ///< by batch
    CachedModel<std::vector<std::size_t>, std::tuple<int, TableOrder>> listed;  ///< by batch and order
    std::string drafter;  ///< of all settings; "" = they have several
    /// By batch, parameter, and the row whose other parameters count.
    CachedModel<SweepCurveModel, std::tuple<int, std::string, std::optional<std::size_t>>> curve_model;
    CachedModel<SweepHeatMap, std::tuple<int, std::string, std::string>> heat_map;  ///< by batch, x and y
};

const SweepBatchModel& batch_model(SweepState& state) {
    return state.batch_model.get(state.batch, [&] {
        return SweepBatchModel{rows_of_batch(state.settings, state.batch),
                               sweep_front(state.settings, state.batch),
                               sweep_parameters(state.settings, state.batch)};
    });
}

const SweepCurveModel& curve_model(SweepState& state) {
    const SweepFilter filter{state.batch, state.like_selected ? state.chosen : std::nullopt,
                             state.one_per_head};
    return state.curve_model.get({filter.batch, state.parameter, filter.like}, [&] {
        return build_sweep_curves(state.settings, state.shown->oracles, state.parameter, filter);
    });
}

/// Selects the advised setting, or the fastest, of a new sweep.
void show_sweep(SweepState& state, const std::shared_ptr<const SweepReport>& view) {
    if (state.shown == view) return;
    const SweepTab tab = state.tab;
    state = {};
    state.shown = view;
    state.tab = tab;
    state.settings = view->settings;
    const auto same = [&](const SweepSetting& one) { return one.drafter == view->settings[0].drafter; };
    if (std::ranges::all_of(view->settings, same)) state.drafter = view->settings[0].drafter;
    state.batches = sweep_batches(state.settings);
    state.batch = state.batches.empty() ? 1 : state.batches.front();
    state.chosen = view->advice.choice.chosen.value_or(0);
    const std::vector<SweepParameter>& parameters = batch_model(state).parameters;
    if (!parameters.empty()) state.parameter = state.x = parameters.front().name;
    if (parameters.size() > 1) state.y = parameters[1].name;
}

void choose_parameter(const char* id, const Style& style, const std::vector<SweepParameter>& parameters,
                      std::string& chosen) {
    ImGui::SetNextItemWidth(6.5f * style.em);
    if (!ImGui::BeginCombo(id, chosen.c_str())) return;
    for (const SweepParameter& one : parameters)
        if (ImGui::Selectable(fmt::format("{}: {} values", one.name, one.values.size()).c_str(),
                              one.name == chosen))
            chosen = one.name;
    ImGui::EndCombo();
}

void draw_choices(const Style& style, SweepState& state) {
    const auto tab = [&](const char* label, SweepTab to) {
        if (ImGui::RadioButton(label, state.tab == to)) state.tab = to;
        ImGui::SameLine();
    };
    tab("Front", SweepTab::front);
    tab("Curves", SweepTab::curves);
    tab("Heat map", SweepTab::heat_map);
    tab("Settings", SweepTab::list);
    ImGui::BeginDisabled(state.batches.size() < 2);
    ImGui::SetNextItemWidth(5.5f * style.em);
    choose_item("##batch", state.batches, state.batch,
                [](int batch) { return fmt::format("batch {}", batch); });
    ImGui::EndDisabled();
}

void show_setting_tooltip(const Style& style, const SweepSetting& setting) {
    if (!ImGui::BeginItemTooltip()) return;
    draw_in_font(style.ui_bold, setting_name(setting));
    for (const auto& [label, value] : describe_setting(setting))
        ImGui::TextUnformatted(label.empty() ? value.c_str() : fmt::format("{} {}", label, value).c_str());
    ImGui::EndTooltip();
}

/// Makes the marks of a plot buttons. Of marks that overlap, the one drawn last is hit, and has the card.
void place_buttons(const Style& style, SweepState& state) {
    const ImVec2 after = ImGui::GetCursorScreenPos();
    const float radius = 0.45f * style.em;
    bool hit = false;
    for (std::size_t i = state.marks.size(); i-- > 0;) {
        const SweepMark& mark = state.marks[i];
        ImGui::PushID(static_cast<int>(mark.row));
        ImGui::SetCursorScreenPos({mark.at.x - radius, mark.at.y - radius});
        if (ImGui::InvisibleButton("setting", {2 * radius, 2 * radius})) state.chosen = mark.row;
        if (!hit) show_setting_tooltip(style, state.settings[mark.row]);
        hit |= ImGui::IsItemHovered();
        ImGui::PopID();
    }
    state.marks.clear();
    ImGui::SetCursorScreenPos(after);
    ImGui::Dummy({0, 0});
}

/// Draws a setting's mark: a star at the default, a ring around the selected one.
void draw_setting(const Style& style, SweepState& state, std::size_t row, ImVec2 at, std::uint32_t rgb,
                  bool faint, int shape = 0) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    const float radius = (faint ? 0.2f : 0.28f) * style.em;
    if (state.shown->usual == row)
        draw_star(list, at, 0.6f * style.em, to_im(rgb), to_im(style.colours.text));
    else
        draw_shape(list, shape, at, radius, to_im(rgb, faint ? 0.45f : 1.0f));
    if (state.chosen == row) list->AddCircle(at, 0.6f * style.em, to_im(style.colours.accent), 0, 2.5f);
    state.marks.push_back({row, at});
}

void draw_interval(double x, const Estimate& estimate, std::uint32_t rgb) {
    if (!estimate.interval) return;
    ImPlot::GetPlotDrawList()->AddLine(ImPlot::PlotToPixels(x, estimate.interval->low),
                                       ImPlot::PlotToPixels(x, estimate.interval->high), to_im(rgb, 0.6f),
                                       1.5f);
}

constexpr ImPlotFlags sweep_plot_flags = plot_flags | ImPlotFlags_NoLegend | ImPlotFlags_NoInputs;

/// Draws lines of equal speed-up over decoding without a drafter, up to the first one above `best`.
void draw_speed_lines(const Style& style, double plain_ms, double best) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    const ImPlotRect limits = ImPlot::GetPlotLimits();
    const float size = 0.76f * style.em;
    const double step = best > 4 ? 0.5 : best > 2 ? 0.2 : 0.1;
    std::vector<ImVec2> labels;  // top left corners
    const auto draw = [&](double speedup, bool even) {
        const auto tau_at = [&](double ms) { return speedup * ms / plain_ms; };
        const ImVec2 a = ImPlot::PlotToPixels(limits.X.Min, tau_at(limits.X.Min));
        const ImVec2 b = ImPlot::PlotToPixels(limits.X.Max, tau_at(limits.X.Max));
        list->AddLine(a, b, to_im(style.colours.text_dim, even ? 0.9f : 0.3f), even ? 2.0f : 1.0f);
        // The label is where the line leaves the plot, at the right or at the top.
        const double out = std::min(limits.X.Max, limits.Y.Max * plain_ms / speedup);
        if (out <= limits.X.Min || tau_at(out) <= limits.Y.Min) return;
        const std::string text = fmt::format("x {:.1f}", speedup);
        const ImVec2 end = ImPlot::PlotToPixels(out, tau_at(out));
        const float width = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str()).x;
        const ImVec2 at(end.x - width - 4, end.y + 2);
        if (at.x < a.x) return;  // cut by the left border
        // Steep lines leave the top close to each other.
        for (const ImVec2& label : labels)
            if (std::abs(label.x - at.x) < width + 0.5f * style.em && std::abs(label.y - at.y) < size) return;
        list->AddText(style.ui, size, at, to_im(style.colours.text_dim), text.c_str());
        labels.push_back(at);
    };
    draw(1, true);  // first, so that plain decoding keeps its label
    for (double speedup = step; speedup < best + step; speedup += step)
        if (std::abs(speedup - 1) > 1e-6) draw(speedup, false);
}

void draw_front(const Style& style, SweepState& state, ImVec2 size) {
    ValueRange xs, ys;
    double best = 0;
    const auto& [rows, front, parameters] = batch_model(state);
    for (const std::size_t r : rows) {
        xs.add(state.settings[r].round_ms);
        ys.add(state.settings[r].figures.tau.value);
        best = std::max(best, state.settings[r].figures.speedup.value);
    }
    for (const std::size_t r : front) ys.add(state.settings[r].figures.tau);
    if (rows.empty()) return draw_hint(style, "no settings of this batch");
    xs.widen(0.06);
    ys.widen(0.08);
    if (!ImPlot::BeginPlot("##front", size, sweep_plot_flags)) return;
    ImPlot::SetupAxes("predicted time of a round, ms", "tau", ImPlotAxisFlags_NoGridLines,
                      ImPlotAxisFlags_NoGridLines);
    ImPlot::SetupAxesLimits(xs.low, xs.high, ys.low, ys.high, ImPlotCond_Always);
    ImPlot::SetupFinish();
    ImPlot::PushPlotClipRect();
    draw_speed_lines(style, state.settings[rows.front()].plain_ms, best);
    const auto place = [](const SweepSetting& setting) {
        return ImPlot::PlotToPixels(setting.round_ms, setting.figures.tau.value);
    };
    std::vector<ImVec2> stairs;
    for (const std::size_t r : front) {
        const ImVec2 at = place(state.settings[r]);
        if (!stairs.empty()) stairs.push_back({at.x, stairs.back().y});
        stairs.push_back(at);
    }
    ImPlot::GetPlotDrawList()->AddPolyline(stairs.data(), static_cast<int>(stairs.size()),
                                           to_im(style.colours.text, 0.7f), 1.5f, 0);
    for (const bool on_front : {false, true})
        for (const std::size_t r : rows) {
            const SweepSetting& setting = state.settings[r];
            if (setting.figures.on_front != on_front) continue;
            const std::uint32_t rgb = head_rgb(style, setting.head);
            if (on_front) draw_interval(setting.round_ms, setting.figures.tau, rgb);
            draw_setting(style, state, r, place(setting), rgb, !on_front);
        }
    ImPlot::PopPlotClipRect();
    ImPlot::EndPlot();
    place_buttons(style, state);
}

/// Draws an oracle as a dashed line across the plot, with its name above the end that curves leave free.
void draw_oracle(const Style& style, const SweepOracleLine& oracle) {
    ImDrawList* list = ImPlot::GetPlotDrawList();
    const ImPlotRect limits = ImPlot::GetPlotLimits();
    const ImVec2 left = ImPlot::PlotToPixels(limits.X.Min, oracle.value);
    const float end = ImPlot::PlotToPixels(limits.X.Max, oracle.value).x;
    const float dash = 0.5f * style.em, size = 0.76f * style.em;
    const ImU32 colour = to_im(head_rgb(style, oracle.head));
    for (float x = left.x; x < end; x += 1.7f * dash)
        list->AddLine({x, left.y}, {std::min(x + dash, end), left.y}, colour, 1.5f);
    const float margin = 0.4f * style.em;
    const float width = style.ui->CalcTextSizeA(size, 1e9f, 0, oracle.name.c_str()).x;
    list->AddText(style.ui, size,
                  {oracle.name_at_right ? end - width - margin : left.x + margin, left.y - 1.15f * size},
                  to_im(style.colours.text_dim), oracle.name.c_str());
}

/// Draws one quantity of the curves.
void draw_curve_plot(const Style& style, SweepState& state, const SweepCurveModel& model, bool speed,
                     ImVec2 size) {
    const std::vector<SweepOracleLine>& oracles = speed ? model.speed_oracles : model.tau_oracles;
    const auto figure = [&](std::size_t row) -> const Estimate& {
        return speed ? state.settings[row].figures.speedup : state.settings[row].figures.tau;
    };
    ValueRange xs, ys;
    for (const double value : model.values) xs.add(value);
    for (const SweepOracleLine& oracle : oracles) ys.add(oracle.value);
    for (const SweepCurve& curve : model.curves)
        for (const auto& [value, row] : curve.points) ys.add(figure(row));
    const bool logarithmic = xs.low > 0 && xs.high > 16 * xs.low;
    ys.widen(0.08);
    if (!oracles.empty())  // room for a name above the highest line; the axis takes about 3.5 of text
        ys.high += (ys.high - ys.low) * style.em / std::max(size.y - 3.5f * style.em, 4 * style.em);
    if (!ImPlot::BeginPlot(speed ? "##speed" : "##tau", size, sweep_plot_flags)) return;
    const char* figure_name = size.y > 11 * style.em ? "x AR (predicted)" : "x AR";
    ImPlot::SetupAxes(state.parameter.c_str(), speed ? figure_name : "tau", ImPlotAxisFlags_NoGridLines,
                      ImPlotAxisFlags_NoGridLines);
    if (logarithmic) {
        ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
        xs = {xs.low / 1.3, 1.3 * xs.high};
    } else {
        xs.widen(0.06);
    }
    set_value_ticks(model.values, xs, logarithmic, size.x - 4.5f * style.em);
    ImPlot::SetupAxesLimits(xs.low, xs.high, ys.low, ys.high, ImPlotCond_Always);
    ImPlot::SetupFinish();
    ImPlot::PushPlotClipRect();
    for (const SweepOracleLine& oracle : oracles) draw_oracle(style, oracle);
    for (const SweepCurve& curve : model.curves) {
        const std::uint32_t rgb = head_rgb(style, curve.head);
        std::vector<ImVec2> line;
        for (const auto& [value, row] : curve.points)
            line.push_back(ImPlot::PlotToPixels(value, figure(row).value));
        ImPlot::GetPlotDrawList()->AddPolyline(line.data(), static_cast<int>(line.size()), to_im(rgb), 1.8f,
                                               0);
        for (std::size_t i = 0; i < line.size(); ++i) {
            draw_interval(curve.points[i].first, figure(curve.points[i].second), rgb);
            draw_setting(style, state, curve.points[i].second, line[i], rgb, false, curve.same_colour);
        }
    }
    ImPlot::PopPlotClipRect();
    ImPlot::EndPlot();
    ImGui::PushID(speed ? "speed marks" : "tau marks");
    place_buttons(style, state);
    ImGui::PopID();
}

/// Draws the curves over SweepState::parameter, with their legend.
void draw_parameter_curves(const Style& style, SweepState& state, ImVec2 size) {
    const float top = ImGui::GetCursorPosY();
    const SweepCurveModel& model = curve_model(state);
    if (model.curves.empty()) return draw_hint(style, "the selected setting has no such parameter");
    for (const SweepCurve& curve : model.curves) {
        const ImVec2 at = ImGui::GetCursorScreenPos();
        const ImVec2 middle(at.x + 0.3f * style.em, at.y + ImGui::GetTextLineHeight() / 2);
        draw_shape(ImGui::GetWindowDrawList(), curve.same_colour, middle, 0.3f * style.em,
                   to_im(head_rgb(style, curve.head)));
        draw_legend_entry(style, 0, curve.name.c_str());
        if (&curve != &model.curves.back() &&
            ImGui::GetItemRectMax().x + 12 * style.em < ImGui::GetCursorScreenPos().x + size.x)
            ImGui::SameLine(0, style.em);
    }
    if (model.left_out > 0) draw_hint(style, fmt::format("{} slower curves are not shown", model.left_out));
    const float room = std::max(size.y - (ImGui::GetCursorPosY() - top), 12 * style.em);
    const float height = (room - ImGui::GetStyle().ItemSpacing.y) / 2;
    draw_curve_plot(style, state, model, true, {size.x, height});
    draw_curve_plot(style, state, model, false, {size.x, height});
}

void draw_curves(const Style& style, SweepState& state, ImVec2 size) {
    const std::vector<SweepParameter>& parameters = batch_model(state).parameters;
    if (parameters.empty())
        return draw_hint(style, "no parameter has two values; sweep several, as in fr-spec:v=2048|8192");
    const float top = ImGui::GetCursorPosY();
    choose_parameter("##parameter", style, parameters, state.parameter);
    ImGui::SameLine();
    ImGui::BeginDisabled(!state.chosen);
    ImGui::Checkbox("others as selected", &state.like_selected);
    ImGui::EndDisabled();
    show_tooltip(style,
                 "On: settings with the selected one's other parameters. Off: the fastest setting of each "
                 "value.");
    draw_parameter_curves(style, state, {size.x, size.y - (ImGui::GetCursorPosY() - top)});
}

/// Draws the front and the curves over every parameter, as cells of equal size.
void draw_sweep_picture(const Style& style, SweepState& state) {
    const std::vector<SweepParameter>& parameters = batch_model(state).parameters;
    const int cells = static_cast<int>(parameters.size()) + 1, columns = cells == 4 ? 2 : std::min(cells, 3);
    const int lines = (cells + columns - 1) / columns;
    const ImVec2 room = ImGui::GetContentRegionAvail(), gap = ImGui::GetStyle().ItemSpacing;
    const ImVec2 cell(room.x / static_cast<float>(columns) - gap.x,
                      room.y / static_cast<float>(lines) - gap.y);
    state.chosen.reset();
    state.one_per_head = true;
    for (int i = 0; i < cells; ++i) {
        if (i % columns > 0) ImGui::SameLine();
        ImGui::PushID(i);
        if (ImGui::BeginChild("cell", cell, 0, ImGuiWindowFlags_NoScrollbar)) {
            const ImVec2 inner = ImGui::GetContentRegionAvail();
            if (i == 0) {
                draw_front(style, state, inner);
            } else {
                state.parameter = parameters[static_cast<std::size_t>(i) - 1].name;
                draw_parameter_curves(style, state, inner);
            }
        }
        ImGui::EndChild();
        ImGui::PopID();
    }
}

/// Draws one cell, a button if it has a setting.
void draw_heat_cell(const Style& style, SweepState& state, const SweepHeatMap& map, std::size_t cell,
                    ImVec2 size) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const auto row = map.rows[cell];
    if (!row) return ImGui::Dummy(size);
    ImGui::PushID(static_cast<int>(cell));
    if (ImGui::InvisibleButton("cell", size)) state.chosen = *row;
    show_setting_tooltip(style, state.settings[*row]);
    ImGui::PopID();
    const double speedup = state.settings[*row].figures.speedup.value;
    const double share = map.high > map.low ? (speedup - map.low) / (map.high - map.low) : 1;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 end(at.x + size.x - 1, at.y + size.y - 1);
    list->AddRectFilled(at, end, to_im(style.colours.accent, 0.08f + 0.55f * static_cast<float>(share)));
    if (state.chosen == row) list->AddRect(at, end, to_im(style.colours.text), 0, 2);
    const std::string text = fmt::format("{:.2f}", speedup);
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    list->AddText({at.x + (size.x - extent.x) / 2, at.y + (size.y - extent.y) / 2}, to_im(style.colours.text),
                  text.c_str());
    if (state.shown->usual == row)
        draw_star(list, {at.x + 0.6f * style.em, at.y + 0.6f * style.em}, 0.45f * style.em,
                  to_im(style.colours.warn), to_im(style.colours.text));
}

void draw_heat_map(const Style& style, SweepState& state, ImVec2 size) {
    const std::vector<SweepParameter>& parameters = batch_model(state).parameters;
    if (parameters.size() < 2) return draw_hint(style, "needs two parameters with several values");
    const float top = ImGui::GetCursorPosY();
    choose_parameter("##x", style, parameters, state.x);
    ImGui::SameLine();
    ImGui::TextDisabled("across,");
    ImGui::SameLine();
    choose_parameter("##y", style, parameters, state.y);
    ImGui::SameLine();
    draw_cut_text("down: x AR of the fastest setting, predicted", 0, style.colours.text_dim);
    const SweepHeatMap& map = state.heat_map.get({state.batch, state.x, state.y}, [&] {
        return sweep_heat_map(state.settings, state.x, state.y, state.batch);
    });
    if (map.rows.empty()) return draw_hint(style, "no setting has both parameters");
    const float line = ImGui::GetTextLineHeightWithSpacing(), label = 4 * style.em;
    const float room = size.y - (ImGui::GetCursorPosY() - top) - line;
    const ImVec2 cell(
        std::clamp((size.x - label) / static_cast<float>(map.xs.size()), 2.6f * style.em, 8 * style.em),
        std::clamp(room / static_cast<float>(map.ys.size()), 1.5f * style.em, 4 * style.em));
    if (!ImGui::BeginChild("##heat", {size.x, std::max(room + line, 6 * style.em)}, 0,
                           ImGuiWindowFlags_HorizontalScrollbar))
        return ImGui::EndChild();
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
    const ImVec2 start = ImGui::GetCursorPos();
    for (std::size_t y = 0; y < map.ys.size(); ++y) {
        const float at = start.y + line + static_cast<float>(y) * cell.y;
        ImGui::SetCursorPos({start.x, at + (cell.y - ImGui::GetTextLineHeight()) / 2});
        ImGui::TextDisabled("%s", fmt::format("{:g}", map.ys[y]).c_str());
        for (std::size_t x = 0; x < map.xs.size(); ++x) {
            ImGui::SetCursorPos({start.x + label + static_cast<float>(x) * cell.x, at});
            draw_heat_cell(style, state, map, y * map.xs.size() + x, cell);
        }
    }
    for (std::size_t x = 0; x < map.xs.size(); ++x) {
        ImGui::SetCursorPos({start.x + label + static_cast<float>(x) * cell.x, start.y});
        ImGui::TextDisabled("%s", fmt::format("{:g}", map.xs[x]).c_str());
    }
    ImGui::PopStyleVar();
    ImGui::EndChild();
}

/// Returns drafter and head, without the drafter that all settings share.
std::string list_name(const SweepState& state, const SweepSetting& setting) {
    const bool head_only = !state.drafter.empty() && !setting.head.empty();
    return shorten_paths(head_only ? setting.head : pair_text(setting.drafter, setting.head));
}

void draw_list_row(const Style& style, SweepState& state, std::size_t r) {
    const SweepSetting& setting = state.settings[r];
    ImGui::PushID(static_cast<int>(r));
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const std::string name =
        cut_middle((state.shown->usual == r ? "default: " : "") + list_name(state, setting),
                   ImGui::GetContentRegionAvail().x) +
        "###row";
    if (ImGui::Selectable(name.c_str(), state.chosen == r, ImGuiSelectableFlags_SpanAllColumns))
        state.chosen = r;
    show_setting_tooltip(style, setting);
    for (const int part : {setting.shape.depth + 1, setting.shape.topk, setting.shape.nodes})
        draw_cell_right(fmt::format("{}", part));
    draw_cell_right(fmt::format("{:.2f}", setting.figures.tau.value));
    draw_cell_right(fmt::format("{:.2f}", setting.round_ms));
    draw_cell_right(fmt::format("{:.1f}", setting.figures.tokens_per_second.value));
    draw_cell_right(fmt::format("{:.2f}", setting.figures.speedup.value));
    ImGui::PopID();
}

/// Draws all settings, sorted by the column whose heading was clicked; Up and Down move the selection.
void draw_list(const Style& style, SweepState& state, ImVec2 size) {
    constexpr ImGuiTableFlags flags =
        table_flags | sorting_flags | ImGuiTableFlags_ScrollY | ImGuiTableFlags_Resizable;
    if (!ImGui::BeginTable("settings", 8, flags, size)) return;
    ImGui::TableSetupScrollFreeze(0, 1);
    ImGui::TableSetupColumn(state.drafter.empty() ? "drafter x head" : "head", 0, 3.4f);
    for (const auto& [name, width] : {std::pair{"levels", 0.9f},
                                      {"top-k", 0.9f},
                                      {"nodes", 0.9f},
                                      {"tau", 0.9f},
                                      {"round ms", 1.4f},
                                      {"tok/s", 1.1f},
                                      {"x AR", 1.0f}})
        ImGui::TableSetupColumn(name, number_column, width);
    const TableOrder order = draw_headings();
    const std::vector<std::size_t>& rows = state.listed.get({state.batch, order}, [&] {
        std::vector<std::size_t> all = batch_model(state).rows;  // fastest first
        const auto keys = [&](std::size_t i) -> std::vector<SortKey> {
            const SweepSetting& one = state.settings[all[i]];
            return {list_name(state, one),
                    one.shape.depth + 1,
                    one.shape.topk,
                    one.shape.nodes,
                    one.figures.tau.value,
                    one.round_ms,
                    one.figures.tokens_per_second.value,
                    one.figures.speedup.value};
        };
        std::vector<std::size_t> places = order_rows(order, all.size(), keys);
        for (std::size_t& place : places) place = all[place];
        return places;
    });
    if (ImGui::IsWindowFocused() && state.chosen) {
        const auto at = std::ranges::find(rows, *state.chosen);
        const std::ptrdiff_t to = at - rows.begin() + ImGui::IsKeyPressed(ImGuiKey_DownArrow) -
                                  ImGui::IsKeyPressed(ImGuiKey_UpArrow);
        if (at != rows.end() && to >= 0 && to < std::ssize(rows))
            state.chosen = rows[static_cast<std::size_t>(to)];
    }
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(rows.size()));
    while (clipper.Step())
        for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i)
            draw_list_row(style, state, rows[static_cast<std::size_t>(i)]);
    ImGui::EndTable();
}

/// Draws the button that replays the selected setting, for its trees and text at any round.
void draw_replay(PanelContext& c, SweepState& state, const SweepSetting& setting) {
    const SweepReport& view = *state.shown;
    if (view.recording.empty())
        return draw_hint(c.style, "its rounds need the recording, which this capture does not name");
    const int conversations = std::max(1, static_cast<int>(view.conversations));
    const bool idle = c.status.state == JobState::idle;
    if (icon_button(c.style, Icon::play, "Show its rounds", idle)) {
        SettingReplay wanted;
        wanted.recording = view.recording;
        wanted.model = view.run.model;
        wanted.drafter = setting.drafter;
        wanted.head = setting.head;
        wanted.tree = setting.tree;
        wanted.conversation = static_cast<std::size_t>(state.conversation - 1);
        wanted.conversations = static_cast<std::size_t>(conversations);
        wanted.max_new = view.max_new;
        wanted.threads = c.config.threads;
        c.commands.emplace_back(std::in_place_type<CmdReplaySetting>, CmdReplaySetting{wanted});
        c.ui.focus_panel = "draft_tree";
    }
    show_tooltip(
        c.style,
        "Replays the setting along a conversation of the recording. Draft tree, Text and Rounds then "
        "show every round.");
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("in conversation");
    ImGui::SameLine();
    ImGui::SetNextItemWidth(3.5f * c.style.em);
    if (ImGui::InputInt("##conversation", &state.conversation, 0))
        state.conversation = std::clamp(state.conversation, 1, conversations);
    ImGui::SameLine();
    ImGui::TextDisabled("of %d", conversations);
    if (c.status.activity.starts_with(replaying_activity)) draw_cut_text(c.status.activity);
}

void draw_details(PanelContext& c, SweepState& state) {
    if (!state.chosen) return draw_hint(c.style, "click a setting");
    const SweepSetting& setting = state.settings[*state.chosen];
    ImGui::PushFont(c.style.ui_bold, 0);
    ImGui::TextWrapped("%s", short_name(setting).c_str());
    ImGui::PopFont();
    show_tooltip(c.style, setting_name(setting));
    for (const auto& [label, value] : describe_setting(setting)) {
        if (!label.empty()) {
            ImGui::TextDisabled("%s", label.c_str());
            ImGui::SameLine(6 * c.style.em);
        }
        ImGui::TextWrapped("%s", value.c_str());
    }
    ImGui::Spacing();
    if (ImGui::Button("Use for the next run")) use_setting(c.config, *state.shown, setting);
    show_tooltip(c.style, "Copies the sweep's model, prompts and settings to the Session panel.");
    draw_replay(c, state, setting);
    ImGui::Spacing();
    draw_hint(c.style, state.shown->usual
                           ? "Star: the default of run. Front: nothing accepts as much in less time."
                           : "The default of run is not among these settings.");
    draw_hint(c.style, interval_text(state.shown->conversations));
    if (!state.shown->costs.empty()) draw_hint(c.style, "costs: " + state.shown->costs);
    for (const auto* reasons : {&state.shown->estimates, &state.shown->skipped})
        for (const std::string& reason : *reasons) draw_hint(c.style, reason);
}

}  // namespace

void draw_sweep(PanelContext& c) {
    auto& state = c.panel_state.get<SweepState>();
    const std::shared_ptr<const SweepReport> view = c.picture ? shown_sweep(c) : choose_sweep(c);
    if (!c.picture) draw_sweep_form(c, false);
    if (view == nullptr || view->settings.empty())
        return draw_empty_text(
            c.style,
            "Predicts the speed of many drafters, heads, sizes and trees from a recording: start a sweep "
            "above, or open a capture that holds one.");
    show_sweep(state, view);
    if (c.picture) return draw_sweep_picture(c.style, state);
    draw_choices(c.style, state);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const bool side_by_side = room.x > 42 * c.style.em;
    const float details = side_by_side ? 17 * c.style.em : room.x;
    const ImVec2 size(side_by_side ? room.x - details - c.style.em : room.x,
                      std::max(side_by_side ? room.y : room.y - 11 * c.style.em, 10 * c.style.em));
    if (ImGui::BeginChild("##plot", size)) {
        const ImVec2 inner = ImGui::GetContentRegionAvail();
        if (state.tab == SweepTab::front) draw_front(c.style, state, inner);
        if (state.tab == SweepTab::curves) draw_curves(c.style, state, inner);
        if (state.tab == SweepTab::heat_map) draw_heat_map(c.style, state, inner);
        if (state.tab == SweepTab::list) draw_list(c.style, state, inner);
    }
    ImGui::EndChild();
    if (side_by_side) ImGui::SameLine(0, c.style.em);
    if (ImGui::BeginChild("##details", {0, 0})) draw_details(c, state);
    ImGui::EndChild();
}

}  // namespace draftscope
