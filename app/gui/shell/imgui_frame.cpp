#include "app/gui/shell/imgui_frame.h"

#include <imgui_internal.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace draftscope {
namespace {

constexpr double at_refresh = 1.0 / 60;
constexpr double to_save = 0.5;

/// Returns true while a tooltip waits for the mouse to rest.
bool waits_for_hover(const ImGuiContext& g) {
    if (g.HoverItemDelayId == 0) return false;
    const float delay = std::max(g.Style.HoverDelayShort, g.Style.HoverDelayNormal);
    return g.HoverItemDelayTimer < delay || g.MouseStationaryTimer < g.Style.HoverStationaryDelay ||
           g.HoverItemUnlockedStationaryId != g.HoverItemDelayId;
}

/// Returns true while keys or buttons repeat or a drag scrolls; ImGui counts their time in frames.
bool is_anything_held(const ImGuiContext& g) {
    const auto held = [](const ImGuiKeyData& key) { return key.Down; };
    return std::any_of(std::begin(g.IO.KeysData), std::end(g.IO.KeysData), held);
}

bool is_fading(const ImGuiContext& g) {
    const bool dimmed = ImGui::GetTopMostPopupModal() != nullptr || g.NavWindowingTarget != nullptr;
    return dimmed ? g.DimBgRatio < 1 : g.DimBgRatio > 0 || g.NavWindowingHighlightAlpha > 0;
}

/// Returns true while a window measures itself before it is shown.
bool is_any_window_settling(const ImGuiContext& g) {
    return std::any_of(g.Windows.begin(), g.Windows.end(), [](const ImGuiWindow* window) {
        return window->Active && (window->AutoFitFramesX > 0 || window->AutoFitFramesY > 0 ||
                                  window->HiddenFramesCannotSkipItems > 0);
    });
}

bool is_modifier(ImGuiKey key) {
    return ImGui::IsLRModKey(key) || (key & ImGuiMod_Mask_) != 0;
}

/// Returns the queue index of the first modifier change that follows another key's press.
int first_late_modifier(const ImVector<ImGuiInputEvent>& queue) {
    bool pressed = false;
    for (int i = 0; i < queue.Size; ++i) {
        if (queue[i].Type != ImGuiInputEventType_Key) continue;
        const ImGuiInputEventKey& event = queue[i].Key;
        if (pressed && is_modifier(event.Key)) return i;
        pressed |= event.Down && !is_modifier(event.Key);
    }
    return queue.Size;
}

/// Returns true if the last frame called SetKeyboardFocusHere. The field would drop text typed in the next
/// frame.
bool is_field_to_be_focused() {
    const ImGuiContext& g = *ImGui::GetCurrentContext();
    return g.NavNextActivateId != 0 ||
           (g.NavMoveSubmitted && (g.NavMoveFlags & ImGuiNavMoveFlags_FocusApi) != 0);
}

}  // namespace

void new_imgui_frame() {
    ImVector<ImGuiInputEvent>& queue = ImGui::GetCurrentContext()->InputEventsQueue;
    const int first = is_field_to_be_focused() ? 0 : first_late_modifier(queue);
    ImVector<ImGuiInputEvent> later;
    for (int i = first; i < queue.Size; ++i) later.push_back(queue[i]);
    queue.resize(first);
    ImGui::NewFrame();
    for (const ImGuiInputEvent& event : later) queue.push_back(event);
}

double seconds_to_needed_frame() {
    const ImGuiContext& g = *ImGui::GetCurrentContext();
    if (!g.InputEventsQueue.empty()) return 0;
    if (is_field_to_be_focused() || waits_for_hover(g) || is_anything_held(g) || is_fading(g) ||
        is_any_window_settling(g))
        return at_refresh;
    return g.SettingsDirtyTimer > 0 ? to_save : std::numeric_limits<double>::infinity();
}

}  // namespace draftscope
