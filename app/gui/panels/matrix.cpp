#include "app/gui/models/matrix.h"

#include <algorithm>
#include <tuple>

#include "app/gui/models/cached_model.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/panels/widgets.h"

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
    /// By model, published group and figure; reset with a model.
    CachedModel<MatrixTable, std::tuple<const MatrixModel*, const PublishedGroup*, MatrixFigure>> table;
};

/// Draws a value as a bar with its interval, at the left of the number; an outlined bar is a published one.
void draw_value(const Style& style, const MatrixText& cell, double max, std::uint32_t rgb, bool published) {
    ImGui::TableNextColumn();
    const std::optional<Estimate>& value = cell.value;
    const float room = ImGui::GetContentRegionAvail().x, number = ImGui::CalcTextSize(cell.text.c_str()).x;
    const float width = std::max(0.0f, room - ImGui::CalcTextSize("00.00").x - 0.3f * style.em);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room - number));
    if (!value) return ImGui::TextDisabled("%s", cell.text.c_str());
    const float h = ImGui::GetTextLineHeight();
    const auto x = [&](double v) { return at.x + width * static_cast<float>(std::clamp(v / max, 0.0, 1.0)); };
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 min(at.x, at.y + 1), end(x(value->value), at.y + h - 1);
    if (published)
        list->AddRect(min, end, to_im(rgb, 0.7f));
    else
        list->AddRectFilled(min, end, to_im(rgb, 0.4f), 2);
    if (value->interval) {
        const float y = at.y + h / 2;
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
    ImGui::TextUnformatted(cut_middle(line.name, ImGui::GetContentRegionAvail().x).c_str());
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
    choose_group(c.style, state.groups, state.published, state.group);
}

void draw_table(const Style& style, MatrixState& state, const MatrixModel& model) {
    const PublishedGroup* group = state.published ? &state.groups[state.group] : nullptr;
    const MatrixTable& table = state.table.get(
        {&model, group, state.figure}, [&] { return build_matrix_table(model, group, state.figure); });
    const int columns = static_cast<int>(table.columns.size()) + 1;
    const float width = std::max(ImGui::GetContentRegionAvail().x - style.em,
                                 (12 + 6.5f * static_cast<float>(table.columns.size())) * style.em);
    const float foot = 2 * ImGui::GetTextLineHeightWithSpacing();
    const ImVec2 size(0, std::max(ImGui::GetContentRegionAvail().y - foot, 5 * style.em));
    if (!ImGui::BeginTable("matrix", columns, scrolling_table_flags | sorting_flags, size, width)) return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn("method", ImGuiTableColumnFlags_WidthStretch, 2.5f);
    for (const std::string& column : table.columns)
        ImGui::TableSetupColumn(column.empty() ? "no category" : column.c_str(),
                                ImGuiTableColumnFlags_WidthStretch | number_column, 1);
    const auto keys = [&](std::size_t row) {
        std::vector<SortKey> out = {table.lines[row].name};
        for (const MatrixText& cell : table.lines[row].cells)
            out.push_back(cell.value ? SortKey(cell.value->value) : SortKey(std::string()));
        return out;
    };
    for (const std::size_t row : order_rows(draw_headings(), table.lines.size(), keys))
        draw_line(style, table.lines[row], table.max);
    ImGui::EndTable();
    draw_hint(style, model.note + (table.note.empty() ? "" : "; ") + table.note);
}

}  // namespace

void draw_matrix(PanelContext& c) {
    auto& state = c.panel_state.get<MatrixState>();
    if (state.groups.empty()) state.groups = published_groups();
    const std::shared_ptr<const SweepReport> sweep = shown_sweep(c);
    state.rebuild.update(c, 0, [&] {
        state.measured = build_matrix(c.snapshot);
        state.table = {};
    });
    if (state.shown != sweep) {
        state.shown = sweep;
        state.predicted = sweep == nullptr
                              ? MatrixModel()
                              : build_sweep_matrix(sweep->settings, sweep->categories, sweep->usual);
        state.table = {};
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
