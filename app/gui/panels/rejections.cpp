#include "app/gui/models/rejections.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"

/// Rejections panel: stacked bars of why rounds ended, and the most missed tokens.
namespace draftscope {
namespace {

struct RejectionsState {
    RebuildThrottle rebuild;
    RejectionsModel model;
    RejectionGroup group = RejectionGroup::depth;
};

ImU32 stop_colour(const Style& style, RoundStop stop) {
    const Palette& colours = style.colours;
    switch (stop) {
        case RoundStop::outside_set:
            return to_im(colours.warn);
        case RoundStop::no_candidate:
            return to_im(colours.bad);
        case RoundStop::pruned:
            return to_im(colours.bad, 0.4f);
        case RoundStop::other_drafted:
            return to_im(colours.bad, 0.7f);
        case RoundStop::not_expanded:
            return to_im(colours.accent);
        case RoundStop::all_accepted:
            return to_im(colours.good);
        case RoundStop::nothing_drafted:
            return to_im(colours.text_dim);
        case RoundStop::text_ended:
            break;
    }
    return to_im(colours.text_dim, 0.45f);
}

void draw_legend(const Style& style, const StopCounts& all) {
    bool first = true;
    for (int s = 0; s < round_stops; ++s) {
        if (all.rounds[static_cast<std::size_t>(s)] == 0) continue;
        const std::string name(to_text(RoundStop{s}));
        const float width = ImGui::CalcTextSize(name.c_str()).x + 2 * style.em;
        if (!first) ImGui::SameLine(0, style.em);
        if (!first && ImGui::GetContentRegionAvail().x < width) ImGui::NewLine();
        draw_legend_entry(style, stop_colour(style, RoundStop{s}), name.c_str());
        first = false;
    }
}

/// Draws the shares of a group as one bar; the tooltip has the part under the mouse.
void draw_bar(const Style& style, RejectionGroup group, const StopCounts& counts) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = std::max(ImGui::GetContentRegionAvail().x, 4 * style.em),
                height = ImGui::GetTextLineHeight();
    ImGui::Dummy({width, height});
    const bool hovered = ImGui::IsItemHovered();
    const float mouse = ImGui::GetMousePos().x;
    float x = at.x;
    for (int s = 0; s < round_stops; ++s) {
        const RoundStop stop{s};
        const float end = x + width * static_cast<float>(counts.share(stop));
        if (end - x < 0.5f) continue;
        ImGui::GetWindowDrawList()->AddRectFilled({x, at.y + 1}, {end, at.y + height - 1},
                                                  stop_colour(style, stop));
        if (hovered && mouse >= x && mouse < end)
            ImGui::SetTooltip("%s", describe_stop(group, counts, stop).c_str());
        x = end;
    }
}

void draw_groups(const Style& style, const RejectionsModel& model, RejectionGroup group) {
    if (!ImGui::BeginTable("groups", 3, table_flags | sorting_flags)) return;
    static constexpr const char* names[] = {"depth", "category", "from token"};
    ImGui::TableSetupColumn(names[static_cast<int>(group)], ImGuiTableColumnFlags_WidthFixed);
    ImGui::TableSetupColumn("rounds", ImGuiTableColumnFlags_WidthFixed | number_column);
    ImGui::TableSetupColumn("how they ended",
                            ImGuiTableColumnFlags_WidthStretch | ImGuiTableColumnFlags_NoSort);
    const std::vector<StopCounts>& groups = model.groups(group);
    const std::vector<std::size_t> order =
        order_rows(draw_headings(), groups.size(), [&](std::size_t row) -> std::vector<SortKey> {
            const bool numbered = group != RejectionGroup::category;  // in the order of their numbers
            return {numbered ? SortKey(row) : SortKey(groups[row].label), groups[row].all()};
        });
    const auto draw_row = [&](const StopCounts& counts) {
        begin_row(counts.label);
        draw_cell_right(fmt::format("{}", counts.all()));
        ImGui::TableNextColumn();
        draw_bar(style, group, counts);
    };
    draw_row(model.summary.all);
    for (const std::size_t row : order) draw_row(groups[row]);
    ImGui::EndTable();
}

void draw_missed(PanelContext& c, const RejectionsModel& model) {
    if (model.missed.empty()) return draw_hint(c.style, "no token was missed");
    if (!ImGui::BeginTable("missed", 4, table_flags | sorting_flags | ImGuiTableFlags_ScrollY,
                           ImGui::GetContentRegionAvail()))
        return;
    ImGui::TableSetupScrollFreeze(0, 1);
    ImGui::TableSetupColumn("most missed tokens", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("rounds", ImGuiTableColumnFlags_WidthFixed | number_column);
    ImGui::TableSetupColumn("outside", ImGuiTableColumnFlags_WidthFixed | number_column);
    ImGui::TableSetupColumn("pruned", ImGuiTableColumnFlags_WidthFixed | number_column);
    const auto keys = [&](std::size_t r) -> std::vector<SortKey> {
        return {model.missed[r].text, model.missed[r].rounds, model.missed[r].outside_set,
                model.missed[r].pruned};
    };
    for (const std::size_t r : order_rows(draw_headings(), model.missed.size(), keys)) {
        const MissedTokenRow& row = model.missed[r];
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        ImGui::PushID(row.token_id);
        ImGui::PushFont(c.style.mono, 0.92f * ImGui::GetStyle().FontSizeBase);
        if (ImGui::Selectable(row.text.c_str(), c.ui.round == row.first_round,
                              ImGuiSelectableFlags_SpanAllColumns))
            c.ui.select_round(row.first_round, c.snapshot.rounds.size());
        ImGui::PopFont();
        ImGui::PopID();
        show_tooltip(c.style, row.tip);
        draw_cell_right(fmt::format("{}", row.rounds));
        for (const std::int64_t part : {row.outside_set, row.pruned})
            draw_cell_right(part > 0 ? fmt::format("{}", part) : "-", part == 0);
    }
    ImGui::EndTable();
}

}  // namespace

void draw_rejections(PanelContext& c) {
    auto& state = c.panel_state.get<RejectionsState>();
    state.rebuild.update(c, c.ui.run_id, [&] { state.model = build_rejections(c.snapshot, c.ui.run_id); });
    const RejectionsModel& model = state.model;
    if (!model.empty_text.empty()) return draw_empty_text(c.style, model.empty_text);
    ImGui::TextWrapped("%s", model.headline.c_str());
    if (!model.note.empty()) draw_hint(c.style, model.note);
    if (c.ui.range) draw_hint(c.style, "of the whole run, not of the selected range");
    if (!c.picture) {
        static constexpr std::pair<const char*, RejectionGroup> choices[] = {
            {"by depth", RejectionGroup::depth},
            {"by category", RejectionGroup::category},
            {"by position in the text", RejectionGroup::position}};
        for (const auto& [name, group] : choices) {
            if (group != RejectionGroup::depth) ImGui::SameLine();
            if (ImGui::RadioButton(name, state.group == group)) state.group = group;
        }
    }
    draw_legend(c.style, model.summary.all);
    draw_groups(c.style, model, state.group);
    ImGui::Spacing();
    draw_missed(c, model);
}

}  // namespace draftscope
