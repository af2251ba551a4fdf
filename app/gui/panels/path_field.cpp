#include "app/gui/panels/path_field.h"

#include <imgui_stdlib.h>

#include "app/gui/models/selection.h"
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

}  // namespace draftscope
