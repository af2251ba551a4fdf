#include "app/gui/panels/path_field.h"

#include <fmt/format.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "app/gui/models/selection.h"
#include "app/gui/models/session.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {

void path_field(PanelContext& c, const char* id, const char* hint, std::string& path,
                const PathChoice& choice, const std::function<void()>& chosen) {
    const float gap = ImGui::GetStyle().ItemInnerSpacing.x;
    const float button = ImGui::CalcTextSize("...").x + 2 * ImGui::GetStyle().FramePadding.x + gap;
    const bool lists = !choice.known.empty();
    const auto use = [&path, chosen](const std::string& found) {
        path = found;
        if (chosen) chosen();
    };
    ImGui::SetNextItemWidth(-button - (lists ? ImGui::GetFrameHeight() + gap : 0));
    ImGui::InputTextWithHint(id, hint, &path);
    if (ImGui::IsItemDeactivatedAfterEdit() && chosen) chosen();
    if (!path.empty()) show_tooltip(c.style, path);
    ImGui::PushID(id);
    ImGui::SameLine(0, gap);
    if (lists && ImGui::BeginCombo("##known", "", ImGuiComboFlags_NoPreview)) {
        for (const std::string& known : choice.known) {
            if (ImGui::Selectable(short_name(known, 60).c_str(), known == path)) use(known);
            show_tooltip(c.style, known);
        }
        ImGui::EndCombo();
    }
    if (lists) ImGui::SameLine(0, gap);
    if (ImGui::Button("...##browse")) c.ui.browse = {use, choice.endings, choice.folders, path};
    show_tooltip(c.style, choice.folders ? "Choose a file or a folder" : "Choose a file");
    ImGui::PopID();
}

std::optional<std::string> draw_mistake(PanelContext& c, std::span<const Mistake> mistakes,
                                        std::string_view field) {
    const auto found = std::ranges::find(mistakes, field, &Mistake::field);
    if (found == mistakes.end()) return std::nullopt;
    const std::string text = found->message.substr(0, found->message.find(';'));
    const std::string nearest = short_name(found->nearest, 40);
    const float room = ImGui::GetContentRegionAvail().x - 2 * ImGui::GetStyle().FramePadding.x -
                       ImGui::GetStyle().ItemSpacing.x;
    draw_wrapped(c.style.colours.bad, text);
    if (text != found->message) show_tooltip(c.style, found->message);
    if (nearest.empty()) return std::nullopt;
    if (ImGui::CalcTextSize(text.c_str()).x + ImGui::CalcTextSize(nearest.c_str()).x < room)
        ImGui::SameLine();
    const bool pressed = ImGui::SmallButton(fmt::format("{}###nearest {}", nearest, field).c_str());
    show_tooltip(c.style, fmt::format("The nearest valid value: {}. Click to use it.", found->nearest));
    return pressed ? std::optional(found->nearest) : std::nullopt;
}

bool start_button(PanelContext& c, const char* label, std::span<const Mistake> mistakes, bool enabled) {
    const std::string reason = why_not_to_start(mistakes);
    const bool pressed = icon_button(c.style, Icon::play, label, enabled && reason.empty(), true);
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled) && !reason.empty())
        ImGui::SetTooltip("%s", reason.c_str());
    return pressed;
}

}  // namespace draftscope
