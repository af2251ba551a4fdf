#include <imgui_internal.h>

#include <algorithm>

#include "app/gui/shell/state_dump.h"

// Hooks that Dear ImGui calls for every item if StateDump sets ImGuiContext::TestEngineHookItems.

void ImGuiTestEngineHook_ItemAdd(ImGuiContext* context, ImGuiID id, const ImRect& box,
                                 const ImGuiLastItemData* item) {
    const ImGuiWindow* window = context->CurrentWindow;
    draftscope::ShownItem shown;
    shown.id = id;
    shown.window = draftscope::plain_window_name(window->Name);
    shown.box = ImVec4(box.Min.x, box.Min.y, box.Max.x, box.Max.y);
    shown.visible = !window->Hidden && !window->SkipItems && box.Overlaps(window->ClipRect);
    shown.disabled = item != nullptr && (item->ItemFlags & ImGuiItemFlags_Disabled) != 0;
    draftscope::shown_items().push_back(std::move(shown));
}

void ImGuiTestEngineHook_ItemInfo(ImGuiContext*, ImGuiID id, const char* label, ImGuiItemStatusFlags flags) {
    auto& items = draftscope::shown_items();
    const auto item = std::find_if(items.rbegin(), items.rend(), [id](const auto& i) { return i.id == id; });
    if (item == items.rend()) return;
    item->label = label;
    item->checked = (flags & ImGuiItemStatusFlags_Checked) != 0;
    item->opened = (flags & ImGuiItemStatusFlags_Opened) != 0;
}

void ImGuiTestEngineHook_Log(ImGuiContext*, const char*, ...) {}

const char* ImGuiTestEngine_FindItemDebugLabel(ImGuiContext*, ImGuiID) {
    return nullptr;
}
