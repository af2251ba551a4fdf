#pragma once

#include <imgui.h>

#include <span>

/// Table of all actions of keys, menus and the command palette.
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
    fit_run,
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
    layout_choose,
    quit,
};

/// A command with its menu entry and shortcut.
struct Action {
    ActionId id;
    const char* menu;  ///< "Run", "View", ...; null = not in a menu
    const char* title;
    ImGuiKeyChord chord;  ///< ImGuiKey_None = no key
    const char* keys;     ///< the shortcut's name, "Ctrl+O"
    const char* what;     ///< one line for the help window
};
std::span<const Action> actions();
const Action& action(ActionId id);

}  // namespace draftscope
