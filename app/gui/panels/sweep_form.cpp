#include "app/gui/panels/sweep_form.h"

#include <fmt/format.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "app/gui/models/selection.h"
#include "app/gui/panels/path_field.h"
#include "app/gui/panels/widgets.h"
#include "base/cpus.h"

namespace draftscope {
namespace {

struct SweepFormState {
    SweepRequest request;
    std::shared_ptr<const SweepReport> shown, newest;
};

/// Draws a field with its label at the left.
void text_field(PanelContext& c, const char* name, const char* id, const char* hint, const char* help,
                std::string& text) {
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", name);
    show_tooltip(c.style, help);
    ImGui::SameLine(6 * c.style.em);
    ImGui::SetNextItemWidth(-FLT_MIN);
    ImGui::InputTextWithHint(id, hint, &text);
    draw_mistake(c, c.status.checked->sweep, name, text);
}

/// As text_field(), for a path.
void labelled_path(PanelContext& c, const char* name, const char* id, const char* hint, const char* help,
                   std::string& path, const PathChoice& choice) {
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", name);
    show_tooltip(c.style, help);
    ImGui::SameLine(6 * c.style.em);
    path_field(c, id, hint, path, choice);
    draw_mistake(c, c.status.checked->sweep, name, path);
}

void draw_start(PanelContext& c, SweepRequest request, bool search) {
    const bool idle = c.status.state == JobState::idle;
    const bool complete = !request.recording.empty() && !request.profile.empty();
    if (start_button(c, search ? "Search##advise" : "Sweep##start", c.status.checked->sweep,
                     idle && complete)) {
        request.search = search;
        if (search && request.heads == SweepRequest().heads) request.heads.clear();
        request.model = c.config.model;
        request.threads = c.config.threads;
        c.commands.emplace_back(std::in_place_type<CmdSweep>, CmdSweep{request});
    }
    if (!complete)
        draw_hint(c.style, "needs a recording and the costs of a machine");
    else if (!idle)
        draw_hint(c.style, "waits for the end of the current job");
}

}  // namespace

std::shared_ptr<const SweepReport> shown_sweep(PanelContext& c) {
    auto& state = c.panel_state.get<SweepFormState>();
    const auto& sweeps = c.status.sweeps;
    if (sweeps.empty()) return state.shown = nullptr;
    // A new sweep is shown at once; a choice stays while there is no newer one.
    if (sweeps.front() != state.newest) {
        state.shown = state.newest = sweeps.front();
        if (!state.shown->recording.empty()) state.request.recording = state.shown->recording;
    }
    if (std::ranges::find(sweeps, state.shown) == sweeps.end()) state.shown = sweeps.front();
    return state.shown;
}

std::shared_ptr<const SweepReport> choose_sweep(PanelContext& c) {
    auto& state = c.panel_state.get<SweepFormState>();
    const auto& sweeps = c.status.sweeps;
    if (shown_sweep(c) == nullptr) return nullptr;
    const auto label = [](const SweepReport& sweep) {
        return fmt::format("{}: {} settings on {}",
                           sweep.file.empty() ? std::string("this window") : short_name(sweep.file),
                           sweep.settings.size(), sweep.source);
    };
    if (sweeps.size() == 1) return state.shown;
    ImGui::SetNextItemWidth(-FLT_MIN);
    if (ImGui::BeginCombo("##sweeps", label(*state.shown).c_str())) {
        for (std::size_t i = 0; i < sweeps.size(); ++i) {
            ImGui::PushID(static_cast<int>(i));
            if (ImGui::Selectable(label(*sweeps[i]).c_str(), sweeps[i] == state.shown))
                state.shown = sweeps[i];
            ImGui::PopID();
        }
        ImGui::EndCombo();
    }
    return state.shown;
}

void start_find_fastest(const RunConfig& config, Commands& commands, UiState& ui) {
    constexpr int max_tokens =
        64;  // of a text, our default: the searched settings keep their order with longer ones
    CmdFindFastest command{config};
    command.config.max_new = std::min(config.max_new, max_tokens);
    commands.emplace_back(std::move(command));
    ui.focus_panel = "advisor";
}

void set_sweep_input(PanelState& state, const std::string& path, bool recording) {
    SweepRequest& request = state.get<SweepFormState>().request;
    (recording ? request.recording : request.profile) = path;
}

void draw_find_fastest(PanelContext& c) {
    const Style& style = c.style;
    if (!c.status.finding) {
        const bool idle = c.status.state == JobState::idle;
        if (icon_button(style, Icon::play, "Find the fastest setting##find", idle, true))
            start_find_fastest(c.config, c.commands, c.ui);
        const std::string texts =
            c.config.prompts_file.empty() ? "12 shipped conversations" : short_name(c.config.prompts_file);
        show_tooltip(
            style,
            fmt::format("Records {} with the session's model, measures this machine's costs (kept for the "
                        "next time), searches heads, sizes and trees of the session's drafter, and "
                        "runs plain decoding, the present and the advised setting in turns. The demo "
                        "takes about two minutes.",
                        texts));
        return;
    }
    if (icon_button(style, Icon::stop, "Stop##find")) c.commands.push_back(CmdStop{});
    show_tooltip(style, "Ends the search. What was found and measured so far is kept.");
    ImGui::SameLine();
    const auto step = static_cast<std::size_t>(*c.status.finding);
    for (std::size_t s = 0; s < find_step_names.size(); ++s) {
        if (s > 0) ImGui::SameLine(0, style.em);
        const bool done = s < step;
        const TextColour colour(done        ? style.colours.good
                                : s == step ? style.colours.text
                                            : style.colours.text_dim);
        ImGui::TextUnformatted(fmt::format("{} {}",
                                           done        ? "✓"
                                           : s == step ? "›"
                                                       : "·",
                                           find_step_names[s])
                                   .c_str());
    }
    const float done = c.status.progress < 0 ? 0 : static_cast<float>(c.status.progress);
    ImGui::ProgressBar(done, {-FLT_MIN, 0.35f * style.em}, "");
    draw_cut_text(c.status.activity, 0, style.colours.text_dim);
}

void draw_sweep_form(PanelContext& c, bool search) {
    if (c.status.activity.starts_with(sweeping_activity)) {
        if (icon_button(c.style, Icon::stop, "Stop##sweep")) c.commands.push_back(CmdStop{});
        ImGui::SameLine();
        const float done = c.status.progress < 0 ? 0 : static_cast<float>(c.status.progress);
        ImGui::ProgressBar(done, {8 * c.style.em, 0});
        ImGui::SameLine();
        draw_cut_text(c.status.activity);
        return;
    }
    const ImGuiTreeNodeFlags flags = !search && c.status.sweeps.empty() ? ImGuiTreeNodeFlags_DefaultOpen : 0;
    if (!ImGui::CollapsingHeader(search ? "More: search a recording###form" : "New sweep###form", flags))
        return;
    SweepRequest& request = c.panel_state.get<SweepFormState>().request;
    labelled_path(c, "Recording", "##recording", "folder of a recording",
                  "A target's decode along which the settings are replayed.", request.recording,
                  {{}, true, {}});
    labelled_path(c, "Costs", "##profile", "file of a machine profile",
                  "Machine profile: one that was measured, or one that ships with the program.",
                  request.profile, {{".json"}, false, c.status.profiles});
    text_field(c, "Drafters", "##drafters", "eagle3", "NAME or NAME:FOLDER, comma-separated.",
               request.drafters);
    text_field(c, "Heads", "##heads", search ? "all that have their files" : "full",
               "Head specs, comma-separated; fr-spec:v=2048|8192 stands for one head per value.",
               request.heads);
    c.panel_state.get<FormValues>().sweep = request;
    draw_start(c, request, search);
}

void use_setting(RunConfig& config, const SweepReport& view, const SweepSetting& setting) {
    RunConfig next = view.run;
    next.prompt = std::move(config.prompt);
    config = std::move(next);
    if (config.threads > usable_cores()) config.threads = 0;
    // A run refuses weights files that its head does not use.
    std::erase_if(config.artefacts, [&](const std::string& file) {
        return setting.head.find(file.substr(0, file.find('='))) == std::string::npos;
    });
    config.drafter = setting.drafter;
    if (!setting.head.empty()) config.head = setting.head;
    config.tree = setting.tree;
    config.batch = setting.batch;
}

}  // namespace draftscope
