#include "app/gui/shell/actions.h"

#include <array>

namespace draftscope {

std::span<const Action> actions() {
    using enum ActionId;
    static constexpr ImGuiKeyChord ctrl = ImGuiMod_Ctrl, shift = ImGuiMod_Shift;
    static constexpr std::array table = {
        Action{open_file, "File", "Open capture...", ctrl | ImGuiKey_O, "Ctrl+O", "open a capture file"},
        Action{save_copy, "File", "Save a copy...", ctrl | ImGuiKey_S, "Ctrl+S",
               "save the shown capture to a file"},
        Action{quit, "File", "Quit", ctrl | ImGuiKey_Q, "Ctrl+Q", "close the window"},
        Action{run_pause, "Run", "Run / pause", ImGuiKey_Space, "Space", "start, pause or continue a run"},
        Action{stop, "Run", "Stop", shift | ImGuiKey_Space, "Shift+Space",
               "end the run; recorded rounds are kept"},
        Action{step_round, "Run", "Step one round", ImGuiKey_F10, "F10", "run one round, then pause"},
        Action{step_level, "Run", "Step one level", ImGuiKey_F11, "F11",
               "run one level of the draft tree, then pause"},
        Action{step_phase, "Run", "Step one phase", shift | ImGuiKey_F11, "Shift+F11",
               "run one phase, then pause"},
        Action{previous_round, "Go", "Previous round", ImGuiKey_Comma, ",", "select the previous round"},
        Action{next_round, "Go", "Next round", ImGuiKey_Period, ".", "select the next round"},
        Action{first_round, "Go", "First round", ImGuiKey_Home, "Home", "select the first round of the run"},
        Action{follow, "Go", "Follow the newest round", ImGuiKey_L, "L", "keep the newest round selected"},
        Action{fit, "Go", "Fit views", ImGuiKey_F, "F", "fit tree, timeline and plots to their contents"},
        Action{fit_run, "Go", "Show the whole run", shift | ImGuiKey_F, "Shift+F",
               "show the whole run in the timeline"},
        Action{leave_range, "Go", "Clear the range", ImGuiKey_Escape, "Esc",
               "show the whole run in tables and plots"},
        Action{find, "Go", "Find in text", ctrl | ImGuiKey_F, "Ctrl+F", "search the output"},
        Action{palette, "Go", "Command palette", ctrl | ImGuiKey_K, "Ctrl+K", "find and run any command"},
        Action{theme_dark, "View", "Dark theme", ImGuiKey_None, "", "dark background"},
        Action{theme_light, "View", "Light theme", ImGuiKey_None, "", "light background"},
        Action{larger, "View", "Larger", ctrl | ImGuiKey_Equal, "Ctrl+=", "larger text and controls"},
        Action{smaller, "View", "Smaller", ctrl | ImGuiKey_Minus, "Ctrl+-", "smaller text and controls"},
        Action{normal_size, "View", "Normal size", ctrl | ImGuiKey_0, "Ctrl+0",
               "text size of the monitor's scale"},
        Action{layout_explain, "View", "Layout: explain", ctrl | ImGuiKey_1, "Ctrl+1",
               "tree and plane in front"},
        Action{layout_profile, "View", "Layout: profile", ctrl | ImGuiKey_2, "Ctrl+2",
               "timeline and phases in front"},
        Action{layout_compare, "View", "Layout: compare", ctrl | ImGuiKey_3, "Ctrl+3", "plane in front"},
        Action{layout_choose, "View", "Layout: choose", ctrl | ImGuiKey_4, "Ctrl+4",
               "sweep, advisor and matrix in front"},
        Action{reset_layout, "View", "Reset layout", ImGuiKey_None, "", "put all panels back in place"},
        Action{help, "Help", "Keys and terms", shift | ImGuiKey_Slash, "?", "this list"},
        Action{guide, "Help", "Show the guide", ImGuiKey_F1, "F1", "the introduction of the first start"},
    };
    return table;
}

const Action& action(ActionId id) {
    for (const Action& entry : actions())
        if (entry.id == id) return entry;
    return actions().front();
}

}  // namespace draftscope
