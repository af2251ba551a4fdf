#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>

#include "app/gui/models/finding.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/shell/app.h"
#include "app/gui/shell/layout.h"
#include "base/parse.h"
#include "base/phase_names.h"

/// Help, command palette and file dialogs.
namespace draftscope {
namespace {

constexpr std::pair<const char*, const char*> meanings[] = {
    {"round", "drafts a tree of tokens, verifies it in one target pass, commits the longest accepted path"},
    {"tau", "tokens committed per round, including the target's token"},
    {"rho_tau", "tau of a head / tau of the full head"},
    {"T_head", "time of router, head, topk and gather that delays the round"},
    {"nu", "T_head of a head / T_head of the full head"},
    {"kappa", "T_head of the full head / all other time of a round"},
    {"coverage", "share of emitted tokens that are in the head's active set"},
    {"remainder", "time of a step outside all phases"},
    {"tier 0 to 2", "how times were taken: clocks, GPU graphs, kernels; compare speeds only at tier 0"},
};

constexpr std::pair<const char*, const char*> gestures[] = {
    {"W S A D", "timeline: zoom in and out, move left and right"},
    {"wheel", "zoom at the pointer in timeline and tree; Shift+wheel moves the timeline"},
    {"drag", "tree: move it; timeline: select a range, or move with the right button"},
    {"click", "select a token, node, cell or bar: all panels show its round"},
    {"double click", "tree, timeline and plots: show everything again"},
    {"right click", "panel: copy or save its tables, save a picture"},
    {"← →", "Rounds: previous and next round"},
};

void draw_terms(const char* title, std::span<const std::pair<const char*, const char*>> terms) {
    ImGui::SeparatorText(title);
    if (!ImGui::BeginTable(title, 2, ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_RowBg)) return;
    for (const auto& [term, meaning] : terms) {
        begin_row(term);
        ImGui::TableNextColumn();
        ImGui::TextDisabled("%s", meaning);
    }
    ImGui::EndTable();
}

struct PaletteEntry {
    std::string title, detail;
    std::function<void()> run;
};

bool contains_words(std::string text, const std::string& filter) {
    const auto lower = [](std::string s) {
        std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
        return s;
    };
    text = lower(text);
    std::istringstream words(lower(filter));
    for (std::string word; words >> word;)
        if (text.find(word) == std::string::npos) return false;
    return true;
}

}  // namespace

void App::draw_help() {
    constexpr const char* title = "Keys and terms";
    if (help_requested_) ImGui::OpenPopup(title);
    help_requested_ = false;
    bool open = true;
    ImGui::SetNextWindowSizeConstraints(ImVec2(0, 0), ImVec2(FLT_MAX, ImGui::GetMainViewport()->WorkSize.y));
    if (!begin_dialog(title, &open, ImGuiWindowFlags_AlwaysAutoResize)) return;
    if (ImGui::BeginTable("##keys", 3, ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_RowBg)) {
        for (const Action& entry : actions()) {
            if (*entry.keys == 0) continue;
            ImGui::TableNextRow();
            ImGui::TableNextColumn();
            draw_in_font(style_.mono, entry.keys);
            ImGui::TableNextColumn();
            ImGui::TextUnformatted(entry.title);
            ImGui::TableNextColumn();
            ImGui::TextDisabled("%s", entry.what);
        }
        ImGui::EndTable();
    }
    ImGui::TextDisabled("In a text field, only function keys and keys with Ctrl are shortcuts.");
    draw_terms("Mouse, and keys of panels", gestures);
    draw_terms("Terms", meanings);
    if (ImGui::Button("Close") || ImGui::IsKeyPressed(ImGuiKey_Escape) || !open) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
}

void App::draw_palette() {
    constexpr const char* title = "##palette";
    if (palette_requested_) {
        ImGui::OpenPopup(title);
        palette_filter_.clear();
        palette_choice_ = 0;
    }
    const ImGuiViewport* viewport = ImGui::GetMainViewport();
    ImGui::SetNextWindowPos(ImVec2(viewport->GetCenter().x, viewport->Size.y * 0.16f), ImGuiCond_Always,
                            ImVec2(0.5f, 0));
    ImGui::SetNextWindowSize(ImVec2(style_.em * 36, style_.em * 24));
    if (!ImGui::BeginPopup(title, ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoMove)) {
        palette_requested_ = false;
        return;
    }
    std::vector<PaletteEntry> entries;
    const auto offer = [&](std::string entry_title, std::string detail, std::function<void()> run) {
        if (contains_words(entry_title, palette_filter_))
            entries.push_back({std::move(entry_title), std::move(detail), std::move(run)});
    };
    for (const Action& entry : actions())
        offer(entry.title, entry.keys, [this, id = entry.id] { perform(id); });
    for (const Panel& panel : panels())
        offer(fmt::format("Panel: {}", panel.title), "", [this, &panel] {
            ui_.open[panel.id] = true;
            ImGui::SetWindowFocus(window_name(panel).c_str());
        });
    for (const std::string& file : settings_.recent_files)
        offer(fmt::format("Open recent: {}", short_name(file)), file, [this, file] { open_file(file); });
    // "round 120" or "120"
    const std::size_t digits = std::min(palette_filter_.find_first_of("0123456789"), palette_filter_.size());
    const RoundSpan rounds = rounds_of_run(*snapshot_, ui_.run_id);
    if (const auto number = parse_number<std::size_t>(std::string_view(palette_filter_).substr(digits));
        number && *number >= 1 && *number <= rounds.size())
        offer(fmt::format("Round {}", *number), fmt::format("of {}", rounds.size()),
              [this, round = rounds.first + *number - 1] {
                  ui_.select_round(round, snapshot_->rounds.size());
              });
    for (const std::string& model : status_.models)
        offer(fmt::format("Model: {}", short_name(model)), model, [this, model] { drop(model); });
    for (const PhaseRow& phase : phase_rows)
        if (phase.first_class && phase.id != remainder_phase_id)
            offer(fmt::format("Slowest round by {}", phase.name), "then M: the next slower",
                  [this, &phase] { find_slowest(phase.id); });
    for (const RoundNotes& notes : find_round_notes(*snapshot_, ui_.run_id))
        offer(fmt::format("Go to {}", describe_notes(notes)),
              fmt::format("round {}", notes.round - rounds_of_run(*snapshot_, ui_.run_id).first + 1),
              [this, round = notes.round] { go_to_round(round, ""); });
    for (const DrafterChoice& drafter : status_.drafters)
        offer(fmt::format("Drafter: {}", drafter.spec), drafter.usable ? drafter.name : drafter.why_not,
              [this, &drafter] { config_.drafter = drafter.spec; });
    for (const HeadChoice& head : status_.heads) {
        const std::string reason = why_not(head, config_.drafter);
        offer(fmt::format("Head: {}", head.name), reason.empty() ? head.paper : reason,
              [this, &head] { config_.head = head.spec; });
    }
    ImGui::SetNextItemWidth(-FLT_MIN);
    if (palette_requested_) ImGui::SetKeyboardFocusHere();
    palette_requested_ = false;
    const bool entered = ImGui::InputTextWithHint("##filter", "type a command", &palette_filter_,
                                                  ImGuiInputTextFlags_EnterReturnsTrue);
    if (ImGui::IsItemEdited()) palette_choice_ = 0;
    const int count = static_cast<int>(entries.size());
    if (ImGui::IsKeyPressed(ImGuiKey_DownArrow)) ++palette_choice_;
    if (ImGui::IsKeyPressed(ImGuiKey_UpArrow)) --palette_choice_;
    palette_choice_ = count == 0 ? 0 : std::clamp(palette_choice_, 0, count - 1);
    int chosen = entered && count > 0 ? palette_choice_ : -1;
    if (ImGui::BeginChild("##entries")) {
        for (int i = 0; i < count; ++i) {
            const PaletteEntry& entry = entries[i];
            const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
            if (ImGui::Selectable(entry.title.c_str(), i == palette_choice_)) chosen = i;
            if (i == palette_choice_ && ImGui::IsWindowAppearing()) ImGui::SetScrollHereY();
            const float width = std::min(ImGui::CalcTextSize(entry.detail.c_str()).x, style_.em * 16);
            ImGui::SameLine(right - width - style_.em * 0.5f);
            draw_cut_text(entry.detail, width + 1, style_.colours.text_dim);
        }
        if (count == 0) ImGui::TextDisabled("No matching command.");
    }
    ImGui::EndChild();
    if (chosen >= 0) {
        ImGui::CloseCurrentPopup();
        entries[chosen].run();
    }
    ImGui::EndPopup();
}

void App::draw_file_dialogs() {
    const auto draw = [&](PathDialog& dialog, const std::vector<std::string>& endings) {
        auto path = dialog.draw(style_, endings);
        if (path) settings_.folder = parent_folder(*path);
        return path;
    };
    if (const auto path = draw(open_dialog_, {".dscope", ".sqlite", ".db"})) open_file(*path);
    if (ui_.browse.use) {
        browsed_ = std::exchange(ui_.browse, {});
        std::error_code error;
        const bool is_folder = std::filesystem::is_directory(browsed_.from, error);
        const std::string from = browsed_.from.empty() ? settings_.folder
                                 : is_folder           ? browsed_.from
                                                       : parent_folder(browsed_.from);
        browse_dialog_.request("", from, browsed_.folders);
    }
    if (const auto path = draw(browse_dialog_, browsed_.endings)) browsed_.use(*path);
    if (ui_.open_other_requested) other_dialog_.request("", settings_.folder);
    ui_.open_other_requested = false;
    if (const auto path = draw(other_dialog_, {".dscope"})) commands_.push_back(CmdOpenOther{*path});
    if (const auto path = draw(picture_dialog_, {".png", ".csv"}); path && path->ends_with(".csv")) {
        tables_path_ = *path;
        copied_panel_ = saved_panel_;
    } else if (path) {
        picture_.path = *path;
        wanted_picture_ = picture_;
        picture_from_ = frames_ + 2;
    }
    const bool saving = save_dialog_.is_open();
    const auto path = draw(save_dialog_, {".dscope"});
    if (path)
        commands_.push_back(CmdSaveCopy{*path, snapshot_->source});
    else if (saving && !save_dialog_.is_open())
        leave_when_saved_ = false;
}

/// Asks for the server to watch and what to send it. An empty prompt file sends the session's prompt.
void App::draw_watch_dialog() {
    constexpr const char* title = "Watch a server";
    if (watch_requested_) {
        ImGui::OpenPopup(title);
        if (watched_.url.empty()) watched_.url = "http://127.0.0.1:8080";
        const RunConfig before = std::exchange(watched_.prompts, config_);
        watched_.prompts.model = before.model;
        if (!before.prompts_file.empty()) {
            watched_.prompts.prompts_file = before.prompts_file;
            watched_.prompts.limit = before.limit;
        }
    }
    if (!begin_dialog(title, nullptr, ImGuiWindowFlags_AlwaysAutoResize)) return;
    ImGui::TextUnformatted(
        "Sends prompts to a running llama.cpp, vLLM or SGLang server: to this address and to no other.");
    bool entered = false;
    const auto field = [&](const char* label, const char* hint, std::string& value) {
        ImGui::SetNextItemWidth(style_.em * 28);
        entered |= ImGui::InputTextWithHint(label, hint, &value, ImGuiInputTextFlags_EnterReturnsTrue);
    };
    if (std::exchange(watch_requested_, false)) ImGui::SetKeyboardFocusHere();
    field("Address", "http://HOST:PORT", watched_.url);
    field("Prompt file", "empty: the prompt of the session", watched_.prompts.prompts_file);
    ImGui::SetNextItemWidth(style_.em * 8);
    ImGui::InputInt("Limit", &watched_.prompts.limit);
    show_tooltip(style_, "Conversations taken from the file; 0 = all");
    field("Target", "its GGUF file or folder, for the texts of tokens", watched_.prompts.model);
    ImGui::Spacing();
    const ImVec2 size(style_.em * 7, 0);
    const bool watch = ImGui::Button("Watch", size) || entered;
    ImGui::SameLine();
    const bool cancel = ImGui::Button("Cancel", size) || ImGui::IsKeyPressed(ImGuiKey_Escape);
    if (watch) commands_.emplace_back(std::in_place_type<CmdWatchServer>, watched_);
    if (watch) set_follow(*snapshot_, ui_, true);
    if (watch || cancel) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
}

/// Asks before unsaved rounds are dropped.
void App::draw_leaving() {
    constexpr const char* title = "Save recorded rounds?";
    if (leaving_requested_) ImGui::OpenPopup(title);
    if (!begin_dialog(title, nullptr, ImGuiWindowFlags_AlwaysAutoResize)) return;
    const std::size_t rounds = unsaved_rounds();
    ImGui::Text("%zu recorded round%s not saved.", rounds, rounds == 1 ? " is" : "s are");
    if (status_.state != JobState::idle) ImGui::TextUnformatted("The current run will be stopped.");
    ImGui::Spacing();
    const ImVec2 size(style_.em * 7, 0);
    if (leaving_requested_) ImGui::SetKeyboardFocusHere();
    leaving_requested_ = false;
    const bool save = ImGui::Button("Save...", size);
    ImGui::SameLine();
    const bool discard = ImGui::Button("Discard", size);
    ImGui::SameLine();
    const bool cancel = ImGui::Button("Cancel", size) || ImGui::IsKeyPressed(ImGuiKey_Escape);
    if (save || discard || cancel) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
    if (save) {
        save_dialog_.request("run.dscope", settings_.folder);
        leave_when_saved_ = true;
    } else if (discard && leaving_) {
        std::exchange(leaving_, nullptr)();
    } else if (cancel) {
        leaving_ = nullptr;
    }
}

}  // namespace draftscope
