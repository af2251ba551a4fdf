#include "app/gui/models/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "base/format_count.h"

namespace draftscope {
namespace {

struct KernelsState {
    KernelSettings settings;
    int rows = 0;           ///< 0 = all
    std::string precision;  ///< "" = all
    std::shared_ptr<const KernelReport> shown;
    std::vector<KernelRow> measured;
};

void cell(const Style& style, const std::string& text, bool dim = false) {
    ImGui::TableNextColumn();
    const float room = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text.c_str()).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    if (dim) ImGui::PushStyleColor(ImGuiCol_Text, to_im(style.colours.text_dim));
    ImGui::TextUnformatted(text.c_str());
    if (dim) ImGui::PopStyleColor();
}

/// Draws a percentage over a bar of the same share.
void draw_share_cell(const Style& style, double share) {
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const float length = width * static_cast<float>(std::clamp(share, 0.0, 1.0));
    ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(at.x + width - length, at.y + 0.05f * h),
                                              ImVec2(at.x + width, at.y + 0.95f * h),
                                              to_im(style.colours.accent, 0.35f), 2);
    const std::string text = fmt::format("{:.0f} %", 100 * share);
    const float room = width - ImGui::CalcTextSize(text.c_str()).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    ImGui::TextUnformatted(text.c_str());
}

std::string times(std::optional<double> ratio) {
    return ratio ? fmt::format("{:.2f}", *ratio) : "-";
}

void draw_settings(PanelContext& c, KernelsState& panel_state) {
    const auto number = [&](const char* label, int& value, int max_value, const char* help) {
        ImGui::SetNextItemWidth(4.5f * c.style.em);
        if (ImGui::InputInt(label, &value, 0)) value = std::clamp(value, 1, max_value);
        show_tooltip(c.style, help);
        ImGui::SameLine();
    };
    number("V", panel_state.settings.vocab, 300000, "Rows of the LM head (vocabulary size).");
    number("d", panel_state.settings.hidden, 8192, "Columns of the LM head (hidden size).");
    number("rows", panel_state.settings.gather, 65536,
           "Scattered rows that a gathered head such as SpecVocab or MicroSpec reads.");
    if (ImGui::GetContentRegionAvail().x < 6.5f * c.style.em) ImGui::NewLine();
    const JobState state = c.status.state;
    if (state == JobState::idle) {
        if (icon_button(c.style, Icon::play, "Measure##kernels", true, true)) {
            KernelSettings settings = panel_state.settings;
            settings.precisions = {"int8", "int4", "bf16"};
            settings.threads = c.config.threads;
            c.commands.push_back(CmdMeasureKernels{settings});
        }
        show_tooltip(
            c.style,
            "Times the head, gather and selection kernels for several seconds and measures the memory "
            "bandwidth before and after. Command line: draftscope kernels");
    } else if (c.status.activity.rfind("measuring ", 0) == 0) {
        if (icon_button(c.style, Icon::stop, "Stop##kernels")) c.commands.push_back(CmdStop{});
        ImGui::SameLine();
        draw_cut_text(c.status.activity);
    } else {
        icon_button(c.style, Icon::play, "Measure##kernels", false);
        show_tooltip(c.style, "Not available during a run, which would distort the times.");
    }
}

void draw_choice(PanelContext& c, KernelsState& panel_state, const KernelTable& table) {
    const std::string rows = panel_state.rows == 0 ? "all M" : fmt::format("M = {}", panel_state.rows);
    ImGui::SetNextItemWidth(6 * c.style.em);
    if (ImGui::BeginCombo("##rows", rows.c_str())) {
        if (ImGui::Selectable("all M", panel_state.rows == 0)) panel_state.rows = 0;
        for (const int m : table.row_counts)
            if (ImGui::Selectable(fmt::format("M = {}", m).c_str(), panel_state.rows == m))
                panel_state.rows = m;
        ImGui::EndCombo();
    }
    ImGui::SameLine();
    ImGui::SetNextItemWidth(6 * c.style.em);
    if (ImGui::BeginCombo("##precision",
                          panel_state.precision.empty() ? "all types" : panel_state.precision.c_str())) {
        if (ImGui::Selectable("all types", panel_state.precision.empty())) panel_state.precision.clear();
        for (const std::string& name : table.precisions)
            if (ImGui::Selectable(name.c_str(), panel_state.precision == name)) panel_state.precision = name;
        ImGui::EndCombo();
    }
    ImGui::SameLine();
    const KernelReport& report = *panel_state.shown;
    draw_cut_text(fmt::format("V {} · d {} · {} · {} · read bandwidth {:.1f} GB/s before, {:.1f} after",
                              report.settings.vocab, report.settings.hidden,
                              format_count(report.threads, "thread"), report.isa, report.probe_before,
                              report.probe_after));
}

void draw_table(const Style& style, const KernelTable& table) {
    constexpr ImGuiTableFlags flags = ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoBordersInBody |
                                      ImGuiTableFlags_PadOuterX | ImGuiTableFlags_ScrollY |
                                      ImGuiTableFlags_ScrollX;
    const float width = std::max(ImGui::GetContentRegionAvail().x / style.em, 21.0f);
    const bool ratios = width > 26, bytes = width > 32;
    if (!ImGui::BeginTable("kernels", 6 + (ratios ? 2 : 0) + (bytes ? 1 : 0), flags, {0, 0},
                           (width - 1) * style.em))
        return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn("op", ImGuiTableColumnFlags_WidthStretch, 3.2f);
    for (const char* name : {"type", "M", "us", "GB/s", "of probe"}) ImGui::TableSetupColumn(name);
    if (ratios) ImGui::TableSetupColumn("/ head");
    if (ratios) ImGui::TableSetupColumn("/ M=1");
    if (bytes) ImGui::TableSetupColumn("MB");
    ImGui::TableHeadersRow();
    for (const KernelLine& line : table.lines) {
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        ImGui::TextUnformatted(line.row.op.c_str());
        cell(style, line.row.precision, true);
        cell(style, line.row.rows > 0 ? std::to_string(line.row.rows) : "-");
        cell(style, fmt::format("{:.1f}", line.row.median_us));
        cell(style, fmt::format("{:.1f}", line.gb_per_s));
        draw_share_cell(style, line.share);
        if (ratios) cell(style, times(line.ratio_to_head), !line.ratio_to_head);
        if (ratios) cell(style, times(line.ratio_to_one), !line.ratio_to_one);
        if (bytes) cell(style, fmt::format("{:.2f}", line.row.bytes / 1e6), true);
    }
    ImGui::EndTable();
}

}  // namespace

void draw_kernels(PanelContext& c) {
    auto& panel_state = c.panel_state.get<KernelsState>();
    draw_settings(c, panel_state);
    if (c.status.kernels == nullptr) {
        draw_empty_text(c.style,
                        "Speed of a draft head's kernels on this machine, relative to its memory bandwidth. "
                        "Measuring takes about ten seconds.");
        return;
    }
    if (panel_state.shown != c.status.kernels) {
        panel_state.shown = c.status.kernels;
        panel_state.measured.clear();
        for (const KernelTime& op : panel_state.shown->ops)
            panel_state.measured.push_back(
                {op.op, op.precision, op.rows, op.median_us, op.best_us, op.bytes, op.scattered_probe});
    }
    const KernelTable table = kernel_table(panel_state.measured, panel_state.shown->probe(), panel_state.rows,
                                           panel_state.precision);
    draw_choice(c, panel_state, table);
    draw_table(c.style, table);
}

}  // namespace draftscope
