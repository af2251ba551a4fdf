#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/models/activity.h"
#include "app/gui/models/session.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/shell/app.h"
#include "base/format_count.h"
#include "base/phase_names.h"
#include "base/tier_text.h"
#include "capture/queries.h"
#include "capture/run_setting.h"

/// The bars around the panels: menu bar, toolbar, banners and status line.
namespace draftscope {
namespace {

constexpr ImGuiWindowFlags bar_flags =
    ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoResize |
    ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse |
    ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus;

/// Begins a bar along an edge of the window, outside the dock space. End() must follow.
bool begin_bar(const char* name, ImGuiDir edge, float height, ImU32 ground) {
    ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0.0f);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowMinSize, ImVec2(0, 0));
    ImGui::PushStyleColor(ImGuiCol_WindowBg, ground);
    const bool visible = ImGui::BeginViewportSideBar(name, ImGui::GetMainViewport(), edge, height, bar_flags);
    ImGui::PopStyleColor();
    ImGui::PopStyleVar(2);
    return visible;
}

/// Call before a bar closes. Otherwise ImGui moves its focus to the last window, which may bring a hidden tab
/// to the front.
void leave_bar() {
    ImGui::SetWindowFocus(nullptr);
}

float bar_height(const Style& style, float lines) {
    return lines * ImGui::GetTextLineHeightWithSpacing() + style.em * 0.55f;
}

constexpr const char* state_texts[] = {"idle", "loading", "running", "paused", "stopping"};

bool is_checked(ActionId id, const Settings& settings, const UiState& ui) {
    const ActionId theme = settings.theme == ThemeId::dark ? ActionId::theme_dark : ActionId::theme_light;
    return id == theme || (id == ActionId::follow && ui.follow);
}

/// A figure of the toolbar with the words around it. The big one is the first that a reader should see.
struct ToolbarNumber {
    const char* before;
    std::string value;
    std::string after;
    std::string tip;
    bool big = false;

    float font_size() const { return (big ? 1.55f : 1.0f) * ImGui::GetStyle().FontSizeBase; }
    float width(const Style& style) const {
        ImGui::PushFont(style.ui_bold, font_size());
        const float bold = ImGui::CalcTextSize(value.c_str()).x;
        ImGui::PopFont();
        return bold + ImGui::CalcTextSize(before).x + ImGui::CalcTextSize(after.c_str()).x +
               style.em * (*before != 0 ? 0.7f : 0.35f);
    }
    /// Draws the number on the middle of a line of this height.
    void draw(const Style& style, float height) const {
        const ImVec2 at = ImGui::GetCursorScreenPos();
        ImGui::Dummy({width(style), height});
        show_tooltip(style, tip);
        ImDrawList* list = ImGui::GetWindowDrawList();
        float x = at.x;
        const auto add = [&](ImFont* font, float size, std::uint32_t rgb, const std::string& text) {
            if (text.empty()) return;
            ImGui::PushFont(font, size);
            const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
            list->AddText({x, at.y + (height - extent.y) / 2}, to_im(rgb), text.c_str());
            ImGui::PopFont();
            x += extent.x + 0.35f * style.em;
        };
        add(style.ui, 0, style.colours.text_dim, before);
        add(style.ui_bold, font_size(), style.colours.text, value);
        add(style.ui, 0, style.colours.text_dim, after);
    }
};

/// Draws values as a line without axes. The highest one touches the top, zero the bottom.
void draw_sparkline(const Style& style, const std::vector<float>& values, ImVec2 size) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::Dummy(size);
    show_tooltip(style, "Tokens per second of the newest steps.");
    if (values.size() < 2) return;
    const float highest = std::max(*std::ranges::max_element(values), 1e-6f);
    std::vector<ImVec2> points;
    for (std::size_t i = 0; i < values.size(); ++i)
        points.emplace_back(at.x + size.x * static_cast<float>(i) / static_cast<float>(values.size() - 1),
                            at.y + size.y * (1 - values[i] / highest));
    ImGui::GetWindowDrawList()->AddPolyline(points.data(), static_cast<int>(points.size()),
                                            to_im(style.colours.accent), std::max(1.0f, 0.08f * style.em), 0);
}

}  // namespace

void App::draw_menu_bar() {
    if (!ImGui::BeginMainMenuBar()) return;
    for (const char* menu : {"File", "Run", "Go", "View", "Help"}) {
        if (!ImGui::BeginMenu(menu)) continue;
        for (const Action& entry : actions()) {
            if (std::string_view(entry.menu) != menu) continue;
            if (ImGui::MenuItem(entry.title, entry.keys, is_checked(entry.id, settings_, ui_)))
                perform(entry.id);
            if (entry.id == ActionId::open_file) draw_recent_files();
            if (entry.id != ActionId::slowest || !ImGui::BeginMenu("Slowest round by phase")) continue;
            for (const PhaseRow& phase : phase_rows)
                if (phase.first_class && phase.id != remainder_phase_id &&
                    ImGui::MenuItem(std::string(phase.name).c_str()))
                    find_slowest(phase.id);
            ImGui::EndMenu();
        }
        if (std::string_view(menu) == "View") {
            ImGui::SeparatorText("Panels");
            for (const Panel& panel : panels()) ImGui::MenuItem(panel.title, nullptr, &ui_.open[panel.id]);
        }
        if (std::string_view(menu) == "Go" && snapshot_->runs.size() > 1) {
            ImGui::SeparatorText("Runs");
            for (const RunRow& run : snapshot_->runs) {
                const std::string label = fmt::format("run {}: {} · {}", run.id, run.drafter, run.head);
                if (ImGui::MenuItem(label.c_str(), nullptr, run.id == ui_.run_id))
                    select_run(*snapshot_, ui_, run.id);
            }
        }
        ImGui::EndMenu();
    }
    const RunRow* run = snapshot_->run(ui_.run_id);
    std::string what = "no run yet";
    if (run != nullptr && run->frontend == "import")
        what = run->name + (run->acceptance == imported_acceptance
                                ? "  ·  " + or_unknown(run->drafter) + "  ·  imported rounds"
                                : "  ·  imported timeline");
    else if (run != nullptr)
        what = fmt::format("{}  ·  {}", short_name(run->target), run_drafting(*run, "  ·  "));
    if (run != nullptr && run->batch > 1) what += fmt::format("  ·  batch {}", run->batch);
    const std::string_view kind = run != nullptr ? losslessness(*run) : "exact";
    if (kind != "exact" && kind != "unknown")
        what +=
            fmt::format("  ·  {} ({})", run->verify, kind == "lossy" ? "lossy" : "lossless in distribution");
    if (run != nullptr && run->synthetic) what += "  ·  synthetic weights";
    if (run != nullptr && run->acceptance == "replayed") what += "  ·  replayed";
    const float width = ImGui::CalcTextSize(what.c_str()).x;
    const float right = ImGui::GetWindowWidth() - style_.em * 0.8f;
    ImGui::SetCursorPosX(std::max(ImGui::GetCursorPosX() + style_.em, right - width));
    ImGui::SetCursorPosY((ImGui::GetWindowHeight() - ImGui::GetTextLineHeight()) / 2);
    draw_cut_text(what, std::max(1.0f, right - ImGui::GetCursorPosX()), style_.colours.text_dim);
    ImGui::EndMainMenuBar();
}

void App::draw_recent_files() {
    if (!ImGui::BeginMenu("Open recent", !settings_.recent_files.empty())) return;
    std::string chosen;
    for (std::size_t i = 0; i < settings_.recent_files.size(); ++i) {
        const std::string& file = settings_.recent_files[i];
        const std::string name = fmt::format("{}##{}", short_name(file), i);
        if (ImGui::MenuItem(name.c_str())) chosen = file;
        show_tooltip(style_, file);
    }
    ImGui::Separator();
    if (ImGui::MenuItem("Clear list")) settings_.recent_files.clear();
    ImGui::EndMenu();
    if (chosen.empty()) return;
    std::error_code error;
    if (!std::filesystem::exists(chosen, error)) std::erase(settings_.recent_files, chosen);
    open_file(chosen);  // reports an error for a missing file
}

void App::draw_notice() {
    if (notice_.empty()) return;
    const ImGuiViewport* viewport = ImGui::GetMainViewport();
    const ImVec2 at(viewport->GetCenter().x, viewport->WorkPos.y + viewport->WorkSize.y - style_.em);
    ImGui::SetNextWindowPos(at, ImGuiCond_Always, ImVec2(0.5f, 1.0f));
    ImGui::PushStyleColor(ImGuiCol_WindowBg, to_im(style_.colours.accent_ground));
    constexpr ImGuiWindowFlags flags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoDocking |
                                       ImGuiWindowFlags_NoInputs | ImGuiWindowFlags_AlwaysAutoResize |
                                       ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoFocusOnAppearing;
    if (ImGui::Begin("##notice", nullptr, flags)) ImGui::TextUnformatted(notice_.c_str());
    ImGui::End();
    ImGui::PopStyleColor();
}

void App::draw_run_buttons() {
    const JobState state = status_.state;
    const bool idle = state == JobState::idle, held = state == JobState::held;
    const bool active = !idle && state != JobState::stopping;
    const std::string reason = idle ? why_not_to_start(status_.checked->run) : "";
    if (idle || held) {
        const char* label = held ? "Continue###run_pause" : "Run###run_pause";
        if (icon_button(style_, Icon::play, label, reason.empty(), true)) perform(ActionId::run_pause);
    } else if (icon_button(style_, Icon::pause, "Pause###run_pause", active)) {
        perform(ActionId::run_pause);
    }
    if (reason.empty())
        show_tooltip(style_, "Start, pause or continue the run (Space)");
    else if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled))
        ImGui::SetTooltip("%s", reason.c_str());
    ImGui::SameLine();
    if (icon_button(style_, Icon::stop, "Stop", active)) perform(ActionId::stop);
    show_tooltip(style_, "End the run; recorded rounds are kept (Shift+Space)");
    ImGui::SameLine(0, style_.em * 1.2f);
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("Step");
    static constexpr struct {
        ActionId id;
        const char* label;
        const char* tip;
    } steps[] = {{ActionId::step_round, "Round", "Run one round, then pause (F10)"},
                 {ActionId::step_level, "Level", "Run one level of the draft tree, then pause (F11)"},
                 {ActionId::step_phase, "Phase", "Run one phase, then pause (Shift+F11)"}};
    for (const auto& step : steps) {
        ImGui::SameLine();
        if (icon_button(style_, Icon::step, step.label, state != JobState::stopping && reason.empty()))
            perform(step.id);
        show_tooltip(style_, step.tip);
    }
}

void App::draw_round_buttons() {
    const RoundSpan rounds = rounds_of_run(*snapshot_, ui_.run_id);
    const bool in_flight = in_flight_selected(*snapshot_, ui_);
    const bool any = rounds.size() > 0 && ui_.round.has_value();
    const bool earlier = in_flight ? rounds.size() > 0 : any && *ui_.round > rounds.first;
    const bool later = any && (*ui_.round + 1 < rounds.end || round_in_flight(*snapshot_, ui_) != nullptr);
    if (icon_button(style_, Icon::left, "##previous", earlier)) perform(ActionId::previous_round);
    show_tooltip(style_, "Previous round (,)");
    ImGui::SameLine(0, style_.em * 0.4f);
    const std::string position = round_position(*snapshot_, ui_);
    const float room = ImGui::CalcTextSize("Round 8888 of 8888").x;
    const float width = ImGui::CalcTextSize(position.c_str()).x;
    const float start = ImGui::GetCursorPosX();
    ImGui::SetCursorPosX(start + std::max(0.0f, (room - width) / 2));
    ImGui::AlignTextToFramePadding();
    ImGui::TextUnformatted(position.c_str());
    ImGui::SameLine(start + std::max(room, width) + style_.em * 0.4f);
    if (icon_button(style_, Icon::right, "##next", later)) perform(ActionId::next_round);
    show_tooltip(style_, "Next round (.)");
    ImGui::SameLine();
    ImGui::PushStyleColor(ImGuiCol_Button,
                          to_im(ui_.follow ? style_.colours.accent_ground : style_.colours.raised));
    if (icon_button(style_, Icon::newest, "Follow", true)) perform(ActionId::follow);
    ImGui::PopStyleColor();
    show_tooltip(style_, "Keep the newest round selected (L). Selecting an earlier round turns it off.");
}

void App::draw_activity(float right_edge) {
    const float width = right_edge - ImGui::GetCursorPosX() - style_.em;
    if (width < style_.em * 6) return;
    std::string activity = status_.activity;
    if (status_.state == JobState::held)
        activity = hold_text(status_.hold_point, status_.hold_reason, *own_);
    else if (status_.state == JobState::running && activity.empty())
        activity = prefill_text(*own_);
    else if (status_.state == JobState::idle && activity.empty())
        activity = status_.forecast;
    if (activity.empty()) return;
    const bool loading = status_.progress >= 0 && status_.state != JobState::held;
    if (loading) {
        ImGui::ProgressBar(static_cast<float>(status_.progress),
                           ImVec2(style_.em * 6, ImGui::GetFrameHeight()), "");
        ImGui::SameLine(0, style_.em * 0.6f);
    }
    ImGui::AlignTextToFramePadding();
    const bool held = status_.state == JobState::held;
    ImGui::SetCursorPosY(ImGui::GetCursorPosY() + ImGui::GetStyle().FramePadding.y);
    draw_cut_text(activity, std::max(1.0f, right_edge - ImGui::GetCursorPosX() - style_.em),
                  held ? style_.colours.warn : style_.colours.text_dim);
    show_tooltip(style_, activity);
}

void App::draw_numbers(float height) {
    const bool compared = numbers_.speedup != "-";
    std::vector<ToolbarNumber> shown = {
        {"τ", numbers_.tau, "tokens/round",
         "tau: tokens committed per round, including the target's token; over all rounds of the run, "
         "including "
         "warm-up and calibration."},
        {"", numbers_.tokens_per_second, numbers_.speed_unit,
         "Tokens committed per second of decoding, without pauses.", !compared}};
    const std::string why = "Speed-up over autoregressive (AR) decoding. " + numbers_.speedup_why;
    const std::string& interval = numbers_.speedup_interval;
    if (compared)
        shown.push_back(
            {"×", numbers_.speedup, interval.empty() ? "AR" : "AR [" + interval + "]", why, true});
    else
        shown.push_back({"", "", "no AR baseline", why});
    const float gap = style_.em * 1.4f;
    const ImVec2 spark(style_.em * 5, ImGui::GetFrameHeight());
    const auto width = [&] {
        float sum = style_.em * 0.8f - gap;
        for (const ToolbarNumber& one : shown) sum += one.width(style_) + gap;
        return sum;
    };
    const float left = ImGui::GetCursorPosX(), room = ImGui::GetWindowWidth() - left;
    // A narrow window omits numbers rather than cutting them.
    if (width() > room && shown.back().value.empty()) shown.pop_back();
    if (width() > room) shown.front().after = "";
    if (width() > room) shown.erase(shown.begin() + 1);
    if (width() > room) shown.resize(1);
    const bool has_spark = numbers_.recent_speeds.size() > 1 && width() + 20 * style_.em < room;
    const float right_edge = ImGui::GetWindowWidth() - width() - (has_spark ? spark.x + gap : 0);
    draw_activity(right_edge);
    ImGui::SameLine();
    ImGui::SetCursorPos(
        ImVec2(std::max(right_edge, ImGui::GetCursorPosX()), (height - ImGui::GetFrameHeight()) / 2));
    if (has_spark) {
        draw_sparkline(style_, numbers_.recent_speeds, spark);
        ImGui::SameLine(0, gap);
    }
    for (std::size_t i = 0; i < shown.size(); ++i) {
        if (i > 0) ImGui::SameLine(0, gap);
        shown[i].draw(style_, ImGui::GetFrameHeight());
    }
}

void App::draw_tool_bar() {
    const float height = ImGui::GetFrameHeight() + style_.em * 1.1f;
    if (begin_bar("##tools", ImGuiDir_Up, height, to_im(style_.colours.panel))) {
        ImGui::SetCursorPosY((height - ImGui::GetFrameHeight()) / 2);
        draw_run_buttons();
        ImGui::SameLine(0, style_.em * 1.6f);
        draw_round_buttons();
        ImGui::SameLine(0, style_.em * 1.6f);
        constexpr float room = 100;  // em; a narrower window has it in the menu
        if (ImGui::GetWindowWidth() > room * style_.em) {
            if (icon_button(style_, Icon::none, "Find fastest", status_.state == JobState::idle))
                perform(ActionId::find_fastest);
            show_tooltip(style_,
                         "Find the fastest setting for the session's model, drafter and prompts. The Advisor "
                         "shows the four steps and the advice.");
            ImGui::SameLine(0, style_.em * 1.6f);
        }
        draw_numbers(height);
    }
    ImGui::End();
}

/// Shows why a run could not start or failed, in a window over the panels.
void App::draw_error() {
    if (status_.error.empty()) dismissed_error_.clear();
    if (status_.error.empty() || status_.error == dismissed_error_) return;
    const ImGuiViewport* viewport = ImGui::GetMainViewport();
    const float width = std::min(64 * style_.em, viewport->WorkSize.x - 2 * style_.em);
    // At the bottom, where no tabs are, and above a notice.
    const float bottom =
        viewport->WorkPos.y + viewport->WorkSize.y - (notice_.empty() ? 0.5f : 4) * style_.em;
    ImGui::SetNextWindowPos({viewport->GetWorkCenter().x, bottom}, ImGuiCond_Always, {0.5f, 1});
    ImGui::SetNextWindowSize({width, 0});
    constexpr ImGuiWindowFlags flags = ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoDecoration |
                                       ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                                       ImGuiWindowFlags_NoFocusOnAppearing | ImGuiWindowFlags_NoNav;
    ImGui::PushStyleColor(ImGuiCol_WindowBg, to_im(style_.colours.raised));
    ImGui::PushStyleColor(ImGuiCol_Border, to_im(style_.colours.bad));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, std::max(1.0f, 0.08f * style_.em));
    if (ImGui::Begin("##error", nullptr, flags)) {
        const float padding = 2 * ImGui::GetStyle().FramePadding.x;
        const bool of_field = !status_.error_field.empty();
        const float field = ImGui::CalcTextSize("Go to field").x + padding + ImGui::GetStyle().ItemSpacing.x;
        const float button = ImGui::CalcTextSize("Dismiss").x + padding + (of_field ? field : 0);
        const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
        ImGui::AlignTextToFramePadding();
        ImGui::TextColored(to_vec(style_.colours.bad), "Error");
        ImGui::SameLine(right - button);
        if (of_field && ImGui::Button("Go to field")) {
            ui_.focus_panel = "session";
            ui_.focus_field = status_.error_field;
            dismissed_error_ = status_.error;
        }
        if (of_field) ImGui::SameLine();
        if (ImGui::Button("Dismiss")) {
            dismissed_error_ = status_.error;
            leave_bar();
        }
        ImGui::PushTextWrapPos(right);
        ImGui::TextUnformatted(status_.error.c_str());
        ImGui::PopTextWrapPos();
    }
    ImGui::End();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor(2);
}

void App::draw_banners() {
    draw_error();
    if (!guide_open_) return;
    const float height = bar_height(style_, 3);
    if (begin_bar("##guide", ImGuiDir_Up, height, to_im(style_.colours.accent_ground))) {
        const bool shows_file = !snapshot_->source.empty();
        const bool demo = config_.model.empty() && !status_.default_model.empty();
        ImGui::TextUnformatted(
            fmt::format(
                "1   {}: a small drafter proposes a tree of tokens, and the target verifies all of them in "
                "one "
                "pass.{}",
                shows_file ? "This file has the rounds of a run" : "A run decodes the prompt at the left",
                demo && !shows_file ? " The demo's target is a toy of 135 million parameters." : "")
                .c_str());
        ImGui::TextUnformatted(
            "2   Click a token or a cell of the Rounds strip: all panels then show that round. "
            "The keys , and . select the previous and the next round.");
        ImGui::TextUnformatted(
            "3   Pause with Space, then step one round (F10), level (F11) or phase (Shift+F11) to see "
            "why a token was rejected.");
        ImGui::SetCursorPos(
            ImVec2(ImGui::GetWindowWidth() - style_.em * 6, (height - ImGui::GetFrameHeight()) / 2));
        if (ImGui::Button("Got it", ImVec2(style_.em * 5, 0))) {
            guide_open_ = false;
            settings_.guide_seen = true;
            leave_bar();
        }
    }
    ImGui::End();
}

void App::draw_status_line() {
    const float height = ImGui::GetTextLineHeight() + style_.em * 0.6f;
    if (begin_bar("##status", ImGuiDir_Down, height, to_im(style_.colours.ground))) {
        ImGui::SetCursorPosY((height - ImGui::GetTextLineHeight()) / 2);
        const RunRow* run = snapshot_->run(ui_.run_id);
        const std::size_t unsaved = unsaved_rounds();
        std::string right = snapshot_->source.empty() ? "live" : short_name(snapshot_->source);
        const auto add = [&](const std::string& text) { right += text.empty() ? "" : "  ·  " + text; };
        if (unsaved > 0) add(fmt::format("{} not saved", format_count(unsaved, "round")));
        if (run != nullptr) add(tier_text(run->tier));
        if (run != nullptr) add(losses_text(*snapshot_, run->id));
        if (double load = 0; getloadavg(&load, 1) == 1) add(fmt::format("load {:.1f}", load));
        add(state_texts[static_cast<std::size_t>(status_.state)]);
        const float width = ImGui::CalcTextSize(right.c_str()).x;
        const TextColour colour(style_.colours.text_dim);
        draw_cut_text(status_.capability_line.empty() ? "detecting hardware..." : status_.capability_line,
                      ImGui::GetContentRegionAvail().x - width - 2 * style_.em);
        show_tooltip(style_, status_.capability_details);
        ImGui::SameLine(ImGui::GetWindowWidth() - width - ImGui::GetStyle().WindowPadding.x);
        ImGui::TextUnformatted(right.c_str());
        show_tooltip(
            style_,
            "The capture's source, the measurement tier (compare speeds only at tier 0), the records "
            "that were lost, the machine's load (runnable threads in the last minute; with more than its "
            "cores, runs are slowed down), and the engine's state.");
    }
    ImGui::End();
}

}  // namespace draftscope
