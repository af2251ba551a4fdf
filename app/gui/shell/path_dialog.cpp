#include "app/gui/shell/path_dialog.h"

#include <imgui.h>
#include <imgui_stdlib.h>

#include <filesystem>

#include "app/gui/panels/widgets.h"
#include "base/user_folders.h"

namespace draftscope {

void PathDialog::request(const std::string& suggested, const std::string& folder, bool folders) {
    std::error_code error;
    const bool usable = !folder.empty() && std::filesystem::is_directory(folder, error);
    const std::string home = home_folder().string();
    folder_ = resolve_path("", usable         ? folder
                               : home.empty() ? std::filesystem::current_path(error).string()
                                              : home);
    folders_ = folders;
    name_ = suggested;
    requested_ = open_ = focus_ = stale_ = true;
    problem_.clear();
    to_replace_.clear();
}

void PathDialog::enter(const std::string& folder) {
    folder_ = folder;
    stale_ = true;
    problem_.clear();
}

std::optional<std::string> PathDialog::confirm() {
    const std::string path = resolve_path(name_, folder_);
    std::error_code error;
    focus_ = true;  // the next message concerns the name
    if (name_.empty()) {
        problem_ = "Type or select a file name.";
    } else if (std::filesystem::is_directory(path, error)) {
        name_.clear();
        enter(path);
    } else if (must_exist_ && !std::filesystem::exists(path, error)) {
        problem_ = path + ": no such file.";
    } else if (!std::filesystem::is_directory(parent_folder(path), error)) {
        problem_ = parent_folder(path) + ": no such folder.";
    } else if (!must_exist_ && path != to_replace_ && std::filesystem::exists(path, error)) {
        problem_ = path + " exists. " + verb_ + " again to replace it.";
        to_replace_ = path;
    } else {
        ImGui::CloseCurrentPopup();
        return path;
    }
    return std::nullopt;
}

void PathDialog::draw_list(const Style& style, bool* confirmed) {
    const float below = 2 * ImGui::GetFrameHeightWithSpacing() + style.em * 1.6f;
    if (!ImGui::BeginChild("##files", ImVec2(0, -below), ImGuiChildFlags_Borders)) {
        ImGui::EndChild();
        return;
    }
    if (ImGui::Selectable("..  (parent folder)", false, ImGuiSelectableFlags_NoAutoClosePopups))
        enter(parent_folder(folder_));
    for (const FolderEntry& entry : entries_) {
        const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
        const std::string label = entry.folder ? entry.name + "/" : entry.name;
        const ImGuiSelectableFlags flags =
            ImGuiSelectableFlags_NoAutoClosePopups | ImGuiSelectableFlags_AllowDoubleClick;
        if (ImGui::Selectable(label.c_str(), entry.name == name_, flags)) {
            if (entry.folder) {
                enter(resolve_path(entry.name, folder_));
                break;
            }
            name_ = entry.name;
            focus_ = true;
            *confirmed |= ImGui::IsMouseDoubleClicked(0);
        }
        if (!entry.folder) {
            const std::string size = size_text(entry.bytes);
            ImGui::SameLine(right - ImGui::CalcTextSize(size.c_str()).x - style.em * 0.5f);
            ImGui::TextDisabled("%s", size.c_str());
        }
    }
    if (entries_.empty()) ImGui::TextDisabled("No such files in this folder.");
    ImGui::EndChild();
}

std::optional<std::string> PathDialog::draw(const Style& style, const std::vector<std::string>& endings) {
    if (requested_) ImGui::OpenPopup(title_.c_str());
    ImGui::SetNextWindowSize(ImVec2(style.em * 42, style.em * 30), ImGuiCond_Appearing);
    const bool shown = begin_dialog(title_.c_str());
    open_ = shown || requested_;
    if (!shown) return std::nullopt;
    if (stale_) {
        auto listed = list_folder(folder_, endings);
        entries_ = listed.ok() ? std::move(*listed) : std::vector<FolderEntry>();
        if (!listed.ok()) problem_ = listed.error().message;
        stale_ = false;
    }
    bool confirmed = false;
    draw_in_font(style.mono, folder_);
    draw_list(style, &confirmed);
    ImGui::SetNextItemWidth(-FLT_MIN);
    if (focus_) ImGui::SetKeyboardFocusHere();
    focus_ = requested_ = false;
    confirmed |=
        ImGui::InputTextWithHint("##name", "file name or path", &name_, ImGuiInputTextFlags_EnterReturnsTrue);
    ImGui::TextColored(to_vec(style.colours.bad), "%s", problem_.c_str());
    confirmed |= ImGui::Button(verb_.c_str(), ImVec2(style.em * 7, 0));
    ImGui::SameLine();
    const bool whole_folder = folders_ && ImGui::Button("Use this folder", ImVec2(style.em * 9, 0));
    if (folders_) ImGui::SameLine();
    const bool cancelled =
        ImGui::Button("Cancel", ImVec2(style.em * 7, 0)) || ImGui::IsKeyPressed(ImGuiKey_Escape);
    std::optional<std::string> path;
    if (cancelled || whole_folder) ImGui::CloseCurrentPopup();
    if (whole_folder)
        path = folder_;
    else if (!cancelled && confirmed)
        path = confirm();
    if (cancelled || path) open_ = false;
    ImGui::EndPopup();
    return path;
}

}  // namespace draftscope
