#include "app/gui/models/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/gui/panels/path_field.h"
#include "app/gui/panels/widgets.h"
#include "base/format_count.h"

namespace draftscope {
namespace {

struct KernelsState {
    KernelSettings settings;
    int gather = 3072;
    int rows = 0;           ///< 0 = all
    std::string precision;  ///< "" = all
    std::shared_ptr<const KernelReport> shown;
    std::vector<KernelRow> measured;
};

std::string times(std::optional<double> ratio) {
    return ratio ? fmt::format("{:.2f}", *ratio) : "-";
}

void draw_settings(PanelContext& c, KernelsState& state) {
    const auto number = [&](const char* label, int& value, const char* help) {
        ImGui::SetNextItemWidth(4.5f * c.style.em);
        ImGui::InputInt(label, &value, 0);
        show_tooltip(c.style, help);
        ImGui::SameLine();
    };
    number("V", state.settings.vocab, "Rows of the LM head (vocabulary size).");
    number("d", state.settings.hidden, "Columns of the LM head (hidden size).");
    number("rows", state.gather, "Scattered rows that a gathered head such as SpecVocab or MicroSpec reads.");
    if (ImGui::GetContentRegionAvail().x < 6.5f * c.style.em) ImGui::NewLine();
    KernelSettings settings = state.settings;
    settings.gather = {state.gather};
    settings.precisions = {"int8", "int4", "bf16"};
    settings.threads = c.config.threads;
    c.panel_state.get<FormValues>().kernels = settings;
    const std::vector<Mistake>& mistakes = c.status.checked->kernels;
    const JobState job = c.status.state;
    if (job == JobState::idle) {
        if (start_button(c, "Measure##kernels", mistakes, true))
            c.commands.push_back(CmdMeasureKernels{settings});
        show_tooltip(c.style,
                     "Times the head, gather and selection kernels for a minute or two, and measures the "
                     "memory bandwidth before and after.");
    } else if (c.status.activity.rfind("measuring ", 0) == 0) {
        if (icon_button(c.style, Icon::stop, "Stop##kernels")) c.commands.push_back(CmdStop{});
        ImGui::SameLine();
        const float done = c.status.progress < 0 ? 0 : static_cast<float>(c.status.progress);
        ImGui::ProgressBar(done, {6 * c.style.em, 0});
        ImGui::SameLine();
        draw_cut_text(c.status.activity);
    } else {
        icon_button(c.style, Icon::play, "Measure##kernels", false);
        show_tooltip(c.style, "Not available during a run, which would distort the times.");
    }
    draw_mistake(c, mistakes, "V", state.settings.vocab);
    draw_mistake(c, mistakes, "d", state.settings.hidden);
    draw_mistake(c, mistakes, "rows", state.gather);
    draw_mistake(c, mistakes, "");
}

void draw_choice(PanelContext& c, KernelsState& state, const KernelTable& table) {
    ImGui::SetNextItemWidth(6 * c.style.em);
    choose_item("##rows", table.row_counts, state.rows,
                [](int rows) { return rows == 0 ? "all M" : fmt::format("M = {}", rows); });
    ImGui::SameLine();
    ImGui::SetNextItemWidth(6 * c.style.em);
    choose_item("##precision", table.precisions, state.precision,
                [](const std::string& name) { return name.empty() ? "all types" : name; });
    ImGui::SameLine();
    const KernelReport& report = *state.shown;
    draw_cut_text(fmt::format("V {} · d {} · {} · {} · read bandwidth {:.1f} GB/s before, {:.1f} after",
                              report.settings.vocab, report.settings.hidden,
                              format_count(report.threads, "thread"), report.isa, report.probe_before,
                              report.probe_after));
}

void draw_table(const Style& style, const KernelTable& table) {
    const float width = std::max(ImGui::GetContentRegionAvail().x / style.em, 21.0f);
    const bool ratios = width > 26, bytes = width > 32;
    if (!ImGui::BeginTable("kernels", 6 + (ratios ? 2 : 0) + (bytes ? 1 : 0),
                           scrolling_table_flags | sorting_flags, {0, 0}, (width - 1) * style.em))
        return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn("op", ImGuiTableColumnFlags_WidthStretch, 3.2f);
    std::vector<const char*> names = {"type", "M", "us", "GB/s", "of probe"};
    if (ratios) names.insert(names.end(), {"/ head", "/ M=1"});
    if (bytes) names.push_back("MB");
    for (const char* name : names) ImGui::TableSetupColumn(name, number_column);
    const auto keys = [&](std::size_t row) -> std::vector<SortKey> {
        const KernelLine& line = table.lines[row];
        return {line.row.op, line.row.precision, line.row.rows,     line.row.median_us, line.gb_per_s,
                line.share,  line.ratio_to_head, line.ratio_to_one, line.row.bytes};
    };
    for (const std::size_t row : order_rows(draw_headings(), table.lines.size(), keys)) {
        const KernelLine& line = table.lines[row];
        begin_row(line.row.op);
        draw_cell_right(line.row.precision, true);
        draw_cell_right(line.row.rows > 0 ? std::to_string(line.row.rows) : "-");
        draw_cell_right(fmt::format("{:.1f}", line.row.median_us));
        draw_cell_right(fmt::format("{:.1f}", line.gb_per_s));
        draw_share_cell(line.share, fmt::format("{:.0f} %", 100 * line.share),
                        to_im(style.colours.accent, 0.35f));
        if (ratios) draw_cell_right(times(line.ratio_to_head), !line.ratio_to_head);
        if (ratios) draw_cell_right(times(line.ratio_to_one), !line.ratio_to_one);
        if (bytes) draw_cell_right(fmt::format("{:.2f}", line.row.bytes / 1e6), true);
    }
    ImGui::EndTable();
}

}  // namespace

void draw_kernels(PanelContext& c) {
    auto& state = c.panel_state.get<KernelsState>();
    draw_settings(c, state);
    if (c.status.kernels == nullptr) {
        draw_empty_text(c.style,
                        "Speed of a draft head's kernels on this machine, relative to its memory bandwidth. "
                        "Measuring takes a minute or two.");
        return;
    }
    if (state.shown != c.status.kernels) {
        state.shown = c.status.kernels;
        state.measured.clear();
        for (const KernelTime& op : state.shown->ops)
            state.measured.push_back(
                {op.op, op.precision, op.rows, op.median_us, op.best_us, op.bytes, op.scattered_probe});
    }
    const KernelTable table = kernel_table(state.measured, state.shown->probe(), state.rows, state.precision);
    draw_choice(c, state, table);
    for (const std::string& note : state.shown->notes) draw_cut_text(note);
    draw_table(c.style, table);
}

}  // namespace draftscope
