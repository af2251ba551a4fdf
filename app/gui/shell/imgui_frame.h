#pragma once

/// Where Dear ImGui leaves to the program when frames begin and when the next one is needed.
namespace draftscope {

/// ImGui::NewFrame, but changes of Ctrl, Shift, Alt and Super that follow another key's press are kept for
/// the next frame: else a slow display takes a fast Ctrl+S for an S.
void new_imgui_frame();

/// Seconds after the last frame at which ImGui's current context needs the next one, by what that frame left
/// pending: 0 for input that is still queued, a display's refresh for held keys, hover delays and fades, more
/// for a layout file that is to be written. Infinity when nothing is pending. Call it after Render.
double seconds_to_needed_frame();

/// Which frames follow input or new data: a few, in which layouts and focus settle, and those that ImGui
/// needs.
class FramesDue {
  public:
    /// Input came, or what is shown changed.
    void change() { settling_ = frames_to_settle; }
    /// A frame was computed. Input that is left in the queue counts as a change when its turn comes.
    void computed() {
        needed_ = seconds_to_needed_frame();
        settling_ = has_input() ? frames_to_settle : settling_ - (settling_ > 0 ? 1 : 0);
    }
    /// From the last frame to the next one; infinity = none is due.
    double seconds() const { return settling_ > 0 ? 0 : needed_; }
    bool has_input() const { return needed_ <= 0; }

  private:
    static constexpr int frames_to_settle = 3;
    int settling_ = frames_to_settle;
    double needed_ = 1;
};

}  // namespace draftscope
