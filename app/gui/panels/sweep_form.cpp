#include "app/gui/panels/sweep_form.h"

#include <fmt/format.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "app/gui/models/selection.h"
#include "app/gui/panels/widgets.h"
#include "base/cpus.h"

namespace draftscope {
namespace {

struct SweepFormState {
    SweepRequest request;
    std::shared_ptr<const SweepReport> shown, newest;
};

/// Draws a field with its label at the left.
void text_field(const Style& style, const char* name, const char* id, const char* hint, const char* help,
                std::string& text) {
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", name);
    show_tooltip(style, help);
    ImGui::SameLine(6 * style.em);
    ImGui::SetNextItemWidth(-FLT_MIN);
    ImGui::InputTextWithHint(id, hint, &text);
}

void draw_profile_field(PanelContext& c, std::string& profile) {
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("Costs");
    show_tooltip(
        c.style,
        "Machine profile: a file of draftscope profile-machine, or one that ships with the program.");
    ImGui::SameLine(6 * c.style.em);
    ImGui::SetNextItemWidth(-ImGui::GetFrameHeight() - ImGui::GetStyle().ItemInnerSpacing.x);
    ImGui::InputTextWithHint("##profile", "file of draftscope profile-machine", &profile);
    ImGui::SameLine(0, ImGui::GetStyle().ItemInnerSpacing.x);
    ImGui::BeginDisabled(c.status.profiles.empty());
    const bool open = ImGui::BeginCombo("##profiles", "", ImGuiComboFlags_NoPreview);
    ImGui::EndDisabled();
    if (!open) return;
    for (const std::string& file : c.status.profiles)
        if (ImGui::Selectable(short_name(file, 80).c_str(), file == profile)) profile = file;
    ImGui::EndCombo();
}

void draw_start(PanelContext& c, SweepRequest request, bool search) {
    const bool idle = c.status.state == JobState::idle;
    const bool complete = !request.recording.empty() && !request.profile.empty();
    if (icon_button(c.style, Icon::play, search ? "Search##advise" : "Sweep##start", idle && complete,
                    true)) {
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
    const ImGuiTreeNodeFlags flags = c.status.sweeps.empty() ? ImGuiTreeNodeFlags_DefaultOpen : 0;
    if (!ImGui::CollapsingHeader(search ? "New search###form" : "New sweep###form", flags)) return;
    SweepRequest& request = c.panel_state.get<SweepFormState>().request;
    text_field(c.style, "Recording", "##recording", "folder of draftscope record",
               "A target's decode along which the settings are replayed.", request.recording);
    draw_profile_field(c, request.profile);
    text_field(c.style, "Drafters", "##drafters", "eagle3",
               "NAME or NAME:FOLDER, comma-separated, as for sweep --drafters.", request.drafters);
    text_field(c.style, "Heads", "##heads", search ? "all that have their files" : "full",
               "Head specs, comma-separated; fr-spec:v=2048|8192 stands for one head per value.",
               request.heads);
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
