#include "app/gui/models/matrix.h"

#include <algorithm>
#include <utility>

#include "app/gui/panels/rebuild_throttle.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/panels/widgets.h"
#include "capture/head_traits.h"

namespace draftscope {
namespace {

struct MatrixState {
    RebuildThrottle rebuild;
    std::shared_ptr<const SweepReport> shown;
    MatrixModel measured, predicted;
    bool prefers_sweep = false;
    MatrixFigure figure = MatrixFigure::tau;
    bool published = true;
    std::vector<PublishedGroup> groups;
    std::size_t group = 0;
    MatrixTableCache cache;
    int versions = 0;

    /// Replaces a model, so that its table is built again.
    void replace(MatrixModel& model, MatrixModel by) {
        model = std::move(by);
        model.version = ++versions;
    }
};

/// Draws a value as a bar with its interval; an outlined bar is a published one.
void draw_value(const Style& style, const MatrixText& cell, double max, std::uint32_t rgb, bool published) {
    ImGui::TableNextColumn();
    const std::optional<Estimate>& value = cell.value;
    if (!value) return ImGui::TextDisabled("%s", cell.text.c_str());
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const auto x = [&](double v) { return at.x + width * static_cast<float>(std::clamp(v / max, 0.0, 1.0)); };
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 min(at.x, at.y + 1), end(x(value->value), at.y + h - 1);
    if (published)
        list->AddRect(min, end, to_im(rgb, 0.7f));
    else
        list->AddRectFilled(min, end, to_im(rgb, 0.4f), 2);
    if (value->interval) {
        const float y = at.y + h - 2;
        list->AddLine({x(value->interval->low), y}, {x(value->interval->high), y}, to_im(style.colours.text),
                      1.5f);
    }
    ImGui::TextUnformatted(cell.text.c_str());
    show_tooltip(style, cell.help);
}

void draw_line(const Style& style, const MatrixLine& line, double max) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const TextColour colour(line.published ? style.colours.text_dim : style.colours.text);
    draw_cut_text(line.name);
    show_tooltip(style, line.help);
    const std::uint32_t rgb = head_rgb(style, line.head);
    for (const MatrixText& cell : line.cells) draw_value(style, cell, max, rgb, line.published);
}

void draw_choice(PanelContext& c, MatrixState& state, bool both) {
    const auto choose = [&](const char* name, MatrixFigure figure, const char* help) {
        if (ImGui::RadioButton(name, state.figure == figure)) state.figure = figure;
        show_tooltip(c.style, help);
        ImGui::SameLine();
    };
    choose("tau", MatrixFigure::tau,
           "Tokens per round as in the papers: drafts that the end of a text cut off count.");
    choose("x AR", MatrixFigure::decoding, "Speed over plain decoding of the same prompts, without prefill.");
    choose("x AR end to end", MatrixFigure::end_to_end, "The same with prefill.");
    if (both) {
        ImGui::Checkbox("of the sweep", &state.prefers_sweep);
        show_tooltip(c.style, "On: predictions of the shown sweep. Off: the capture's runs.");
        ImGui::SameLine();
    }
    ImGui::Checkbox("published", &state.published);
    ImGui::SameLine();
    ImGui::BeginDisabled(!state.published);
    ImGui::SetNextItemWidth(std::max(8 * c.style.em, ImGui::GetContentRegionAvail().x));
    if (ImGui::BeginCombo("##group", state.groups[state.group].name.c_str())) {
        for (std::size_t i = 0; i < state.groups.size(); ++i)
            if (ImGui::Selectable(state.groups[i].name.c_str(), i == state.group)) state.group = i;
        ImGui::EndCombo();
    }
    ImGui::EndDisabled();
}

void draw_table(const Style& style, MatrixState& state, const MatrixModel& model) {
    const MatrixTable& table =
        state.cache.table(model, state.published ? &state.groups[state.group] : nullptr, state.figure);
    constexpr ImGuiTableFlags flags = ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoBordersInBody |
                                      ImGuiTableFlags_PadOuterX | ImGuiTableFlags_ScrollY |
                                      ImGuiTableFlags_ScrollX;
    const int columns = static_cast<int>(table.columns.size()) + 1;
    const float width = std::max(ImGui::GetContentRegionAvail().x - style.em,
                                 (12 + 4.5f * static_cast<float>(table.columns.size())) * style.em);
    const float foot = 2 * ImGui::GetTextLineHeightWithSpacing();
    const ImVec2 size(0, std::max(ImGui::GetContentRegionAvail().y - foot, 5 * style.em));
    if (!ImGui::BeginTable("matrix", columns, flags, size, width)) return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn("method", ImGuiTableColumnFlags_WidthStretch, 2.5f);
    for (const std::string& column : table.columns)
        ImGui::TableSetupColumn(column.empty() ? "no category" : column.c_str(),
                                ImGuiTableColumnFlags_WidthStretch, 1);
    ImGui::TableHeadersRow();
    for (const MatrixLine& line : table.lines) draw_line(style, line, table.max);
    ImGui::EndTable();
    draw_hint(style, model.note + (table.note.empty() ? "" : "; ") + table.note);
}

}  // namespace

void draw_matrix(PanelContext& c) {
    auto& state = c.panel_state.get<MatrixState>();
    if (state.groups.empty()) state.groups = published_groups();
    const std::shared_ptr<const SweepReport> sweep = shown_sweep(c);
    if (state.rebuild.needed(c, 0))
        state.rebuild.run(c, 0, [&] { state.replace(state.measured, build_matrix(c.snapshot)); });
    if (state.shown != sweep) {
        state.shown = sweep;
        state.replace(state.predicted,
                      sweep == nullptr
                          ? MatrixModel()
                          : build_sweep_matrix(sweep->settings, sweep->categories, sweep->usual));
    }
    const bool measured = state.measured.empty_text.empty();
    const bool predicted = sweep != nullptr && state.predicted.empty_text.empty();
    if (!measured && !predicted) return draw_empty_text(c.style, state.measured.empty_text);
    draw_choice(c, state, measured && predicted);
    const MatrixModel& model =
        predicted && (state.prefers_sweep || !measured) ? state.predicted : state.measured;
    draw_table(c.style, state, model);
}

}  // namespace draftscope
