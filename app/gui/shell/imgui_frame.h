#pragma once

#include <imgui.h>
#include <implot.h>

#include <string>
#include <utility>

/// What Dear ImGui leaves to the program: its contexts, the begin of frames, and the time of the next frame.
namespace draftscope {

/// Owns ImGui's and ImPlot's contexts. The layout is stored in `ini` ("" = nowhere).
class ImGuiContexts {
  public:
    explicit ImGuiContexts(std::string ini) : ini_(std::move(ini)) {
        ImGui::CreateContext();
        ImPlot::CreateContext();
        ImGui::GetIO().IniFilename = ini_.empty() ? nullptr : ini_.c_str();
    }
    ImGuiContexts(const ImGuiContexts&) = delete;
    ImGuiContexts& operator=(const ImGuiContexts&) = delete;
    ~ImGuiContexts() {
        ImPlot::DestroyContext();
        ImGui::DestroyContext();
    }

  private:
    std::string ini_;
};

/// Calls ImGui::NewFrame. Changes of modifier keys that follow another key's press are deferred to the next
/// frame. Otherwise a slow display would read a fast Ctrl+S as S.
void new_imgui_frame();

/// Returns the seconds from the last frame to the next one that ImGui's current context needs. The value is 0
/// for queued input, and a display refresh for held keys, hover delays and fades. It is longer for a layout
/// file to be written, and infinity if nothing is pending. Call it after Render.
double seconds_to_needed_frame();

/// Decides which frames follow input or new data: a few until layouts and focus settle, and those that ImGui
/// needs.
class FramesDue {
  public:
    /// Notes input or changed contents.
    void change() { settling_ = frames_to_settle; }
    /// Notes a computed frame. Input still in the queue counts as a later change.
    void computed() {
        needed_ = seconds_to_needed_frame();
        settling_ = has_input() ? frames_to_settle : settling_ - (settling_ > 0 ? 1 : 0);
    }
    /// Returns the seconds from the last frame to the next one; infinity = none is due.
    double seconds() const { return settling_ > 0 ? 0 : needed_; }
    bool has_input() const { return needed_ <= 0; }

  private:
    static constexpr int frames_to_settle = 3;
    int settling_ = frames_to_settle;
    double needed_ = 1;
};

}  // namespace draftscope
