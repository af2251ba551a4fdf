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

}  // namespace draftscope
