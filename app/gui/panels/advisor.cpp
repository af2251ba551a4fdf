#include <fmt/format.h>

#include <algorithm>

#include "app/gui/models/sweep.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/panels/widgets.h"
#include "base/cpus.h"
#include "base/format_count.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

/// Draws the speed-up as a dot with its interval, over the line of plain decoding.
void draw_speedup_cell(const Style& style, const ValueRange& scale, const Estimate& speedup, bool advised) {
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const auto x = [&](double value) { return at.x + width * static_cast<float>(scale.at(value)); };
    const float y = at.y + h / 2, radius = 0.25f * style.em;
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddLine({x(1), at.y - 2}, {x(1), at.y + h + 2}, to_im(style.colours.text_dim));
    const ImU32 colour = to_im(advised ? style.colours.good : style.colours.text);
    if (speedup.interval)
        draw_interval_line(list, x(speedup.interval->low), x(speedup.interval->high), y, radius, colour);
    list->AddCircleFilled({x(speedup.value), y}, radius, colour);
    ImGui::Dummy({width, h});
    show_tooltip(style, fmt::format("{} times plain decoding, predicted; the line is plain decoding",
                                    estimate_text(speedup, 3)));
}

void draw_evidence(const Style& style, const SweepReport& view) {
    const std::vector<AdviceLine> lines =
        advice_lines(view.settings, view.advice.choice.chosen, view.advice.choice.runner_up, view.usual);
    if (lines.empty() || !ImGui::BeginTable("evidence", 5, table_flags)) return;
    const ValueRange scale = advice_scale(view.settings, lines);
    ImGui::TableSetupColumn("setting", ImGuiTableColumnFlags_WidthStretch, 3);
    for (const char* name : {"tau", "round ms", "x AR"})
        ImGui::TableSetupColumn(name, ImGuiTableColumnFlags_WidthFixed);
    ImGui::TableSetupColumn("interval", ImGuiTableColumnFlags_WidthStretch, 2);
    ImGui::TableHeadersRow();
    for (const AdviceLine& line : lines) {
        const SweepSetting& setting = view.settings[line.row];
        const bool advised = line.row == view.advice.choice.chosen;
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        const TextColour colour(advised ? style.colours.good : style.colours.text);
        draw_cut_text(line.role);
        draw_wrapped(style.colours.text_dim, short_name(setting));
        draw_cell_right(fmt::format("{:.2f}", setting.figures.tau.value));
        draw_cell_right(fmt::format("{:.2f}", setting.round_ms));
        draw_cell_right(fmt::format("{:.2f}", setting.figures.speedup.value));
        draw_speedup_cell(style, scale, setting.figures.speedup, advised);
    }
    ImGui::EndTable();
}

/// Draws a command with a button that copies it.
void draw_command(const Style& style, const std::string& line, int id) {
    ImGui::PushID(id);
    if (ImGui::SmallButton("Copy")) ImGui::SetClipboardText(line.c_str());
    ImGui::PopID();
    ImGui::SameLine();
    ImGui::PushFont(style.mono, 0.92f * ImGui::GetStyle().FontSizeBase);
    ImGui::TextWrapped("%s", line.c_str());
    ImGui::PopFont();
}

/// The most conversations of "Try it" (our default): enough for an interval, and for a slow model not too
/// many.
constexpr std::size_t max_tried = 8;

/// Draws the buttons that run the setting which the advice speaks of.
void draw_buttons(PanelContext& c, const SweepReport& view) {
    if (!view.advice.choice.chosen) return;
    RunConfig advised = c.config;
    use_setting(advised, view, view.settings[*view.advice.choice.chosen]);
    const std::size_t tried = std::min(view.conversations, max_tried);
    if (icon_button(c.style, Icon::play, "Try it##advice", c.status.state == JobState::idle, true)) {
        RunConfig run = advised;
        run.limit = run.baseline = static_cast<int>(tried);
        run.balanced = true;
        run.calibration_rounds = 0;  // the comparison is with plain decoding
        c.commands.emplace_back(std::in_place_type<CmdStart>, CmdStart{run});
        c.ui.compare_newest = true;
        c.ui.focus_panel = "compare";
    }
    show_tooltip(c.style,
                 "Runs the advised setting and plain decoding with the sweep's model, threads and precision. "
                 "Compare shows the ratio.");
    ImGui::SameLine();
    if (ImGui::Button("Use for the next run##advice")) {
        c.config = advised;
        if (view.advice.plain) c.config.drafter = plain_drafter;
    }
    const int threads = threads_or_default(advised.threads);
    draw_hint(c.style, fmt::format("with {} of the recording and {}",
                                   format_count(static_cast<std::int64_t>(tried), "conversation"),
                                   format_count(threads, "thread")));
    if (view.run.threads > threads)
        draw_wrapped(c.style.colours.warn,
                     fmt::format("predicted for {} threads; this machine has {}", view.run.threads, threads));
}

void draw_list(const std::vector<std::string>& sentences) {
    for (const std::string& one : sentences) {
        ImGui::Bullet();
        ImGui::TextWrapped("%s", one.c_str());
    }
}

/// Draws predicted and measured speed-up of the advised setting on one axis with plain decoding.
void draw_speedup_bar(const Style& style, const Estimate& predicted, const ConfirmedSetting* live,
                      const ConfirmedSetting* present) {
    ValueRange scale;
    scale.add(1);
    scale.add(predicted);
    if (live != nullptr) scale.add(live->speedup);
    if (present != nullptr) scale.add(present->speedup);
    scale.widen(0.08);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = std::min(ImGui::GetContentRegionAvail().x, 36 * style.em), row = 1.25f * style.em;
    const float label = 9 * style.em, plot = std::max(4 * style.em, width - label);
    const auto x = [&](double value) { return at.x + label + plot * static_cast<float>(scale.at(value)); };
    ImDrawList* list = ImGui::GetWindowDrawList();
    int line = 0;
    const auto draw_row = [&](const char* name, const Estimate& value, ImU32 colour, bool hollow) {
        const float y = at.y + row * (static_cast<float>(line++) + 0.5f);
        list->AddText({at.x, y - ImGui::GetTextLineHeight() / 2}, to_im(style.colours.text_dim), name);
        if (value.interval)
            draw_interval_line(list, x(value.interval->low), x(value.interval->high), y, 0.25f * style.em,
                               colour);
        if (hollow)
            list->AddCircle({x(value.value), y}, 0.3f * style.em, colour, 0, 0.12f * style.em);
        else
            list->AddCircleFilled({x(value.value), y}, 0.3f * style.em, colour);
    };
    draw_row("predicted", predicted, to_im(style.colours.good), true);
    if (live != nullptr) draw_row("run here", live->speedup, to_im(style.colours.good), false);
    if (present != nullptr) draw_row("present setting", present->speedup, to_im(style.colours.text), false);
    const float height = row * static_cast<float>(line);
    list->AddLine({x(1), at.y}, {x(1), at.y + height}, to_im(style.colours.text_dim));
    ImGui::Dummy({width, height});
    show_tooltip(
        style,
        "Speed over plain decoding, which is the vertical line. Hollow: predicted; filled: run on this "
        "machine, in turns with plain decoding of the same prompts.");
}

/// Draws the advised setting, its speed-up in large type, and the bar.
void draw_headline(const Style& style, const SweepReport& view) {
    const Advice& advice = view.advice;
    const auto& chosen = advice.choice.chosen;
    // A saved advice lacks the figures of its choice.
    const Estimate predicted = advice.choice.speedup.value > 0 || !chosen || *chosen >= view.settings.size()
                                   ? advice.choice.speedup
                                   : view.settings[*chosen].figures.speedup;
    const ConfirmedSetting* live = nullptr;
    const ConfirmedSetting* present = nullptr;
    for (const ConfirmedSetting& one : view.confirmed)
        (one.setting && one.setting == chosen ? live : present) = &one;
    ImGui::Spacing();
    if (!advice.headline.empty()) {
        draw_in_font(style.ui_bold, advice.headline);
        ImGui::PushFont(style.ui_bold, 1.9f * ImGui::GetStyle().FontSizeBase);
        ImGui::TextUnformatted(
            fmt::format("{:.2f}x", (live != nullptr ? live->speedup : predicted).value).c_str());
        ImGui::PopFont();
        ImGui::SameLine();
        ImGui::SetCursorPosY(ImGui::GetCursorPosY() + 0.75f * style.em);
        ImGui::TextDisabled("%s", live != nullptr ? "plain decoding, run here" : "plain decoding, predicted");
        draw_speedup_bar(style, predicted, live, present);
    } else {
        ImGui::TextWrapped("%s", advice.summary.c_str());
    }
    if (!view.live_verdict.empty()) ImGui::TextWrapped("%s", view.live_verdict.c_str());
    ImGui::Spacing();
}

void draw_reasons(const Style& style, const Advice& advice) {
    ImGui::Spacing();
    if (!advice.reasons.empty()) draw_in_font(style.ui_bold, "Why");
    draw_list(advice.reasons);
    ImGui::Spacing();
}

/// Draws the command in a frame, with a button that copies it.
void draw_command_box(const Style& style, const std::string& line) {
    ImGui::PushStyleColor(ImGuiCol_ChildBg, to_im(style.colours.raised));
    if (ImGui::BeginChild("##command", {0, 0}, ImGuiChildFlags_Borders | ImGuiChildFlags_AutoResizeY))
        draw_command(style, line, -1);
    ImGui::EndChild();
    ImGui::PopStyleColor();
    ImGui::Spacing();
}

}  // namespace

void draw_advisor(PanelContext& c) {
    draw_find_fastest(c);
    const std::shared_ptr<const SweepReport> view = choose_sweep(c);
    draw_sweep_form(c, true);
    if (view == nullptr || view->advice.summary.empty())
        return draw_empty_text(
            c.style,
            "Says which drafter, head, size and tree to run, why, and how sure that is. It takes the "
            "session's "
            "model, drafter and prompts; a search of a recording of your own is under More.");
    if (!ImGui::BeginChild("##advice", {0, 0})) return ImGui::EndChild();
    draw_headline(c.style, *view);
    draw_buttons(c, *view);
    draw_reasons(c.style, view->advice);
    draw_command_box(c.style, view->advice.run_line);
    if (ImGui::CollapsingHeader("Settings compared", ImGuiTreeNodeFlags_DefaultOpen))
        draw_evidence(c.style, *view);
    if (!view->advice.changes.empty() && ImGui::CollapsingHeader("What would change the choice"))
        draw_list(view->advice.changes);
    if (!view->advice.serving.empty() && ImGui::CollapsingHeader("Options of other engines")) {
        int id = 0;
        for (const std::string& line : view->advice.serving) draw_command(c.style, line, id++);
    }
    draw_hint(c.style, fmt::format("{}; costs: {}", interval_text(view->conversations),
                                   view->costs.empty() ? "unknown" : view->costs));
    ImGui::EndChild();
}

}  // namespace draftscope
