#pragma once

#include <imgui.h>

#include <span>

/// One table of everything that a key, a menu entry or the command palette can start.
namespace draftscope {

enum class ActionId {
    run_pause,
    stop,
    step_round,
    step_level,
    step_phase,
    previous_round,
    next_round,
    first_round,
    follow,
    fit,
    leave_range,
    find,
    open_file,
    save_copy,
    palette,
    help,
    guide,
    theme_dark,
    theme_light,
    larger,
    smaller,
    normal_size,
    reset_layout,
    layout_explain,
    layout_profile,
    layout_compare,
    quit,
};

struct Action {
    ActionId id;
    const char* menu;  ///< "Run", "View", ...; null = not in a menu
    const char* title;
    ImGuiKeyChord chord;  ///< ImGuiKey_None = no key
    const char* keys;     ///< as people write it
    const char* what;     ///< one line for the help
};
std::span<const Action> actions();
const Action& action(ActionId id);

}  // namespace draftscope
