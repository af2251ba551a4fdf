#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

/// The window's only door: shows no ImGui.
namespace draftscope {

class Controller;

struct GuiOptions {
    std::vector<std::string> files;
    std::string screenshot;   ///< PNG path: render off-screen and leave
    int frames = 3;           ///< frames to draw before the screenshot
    double wait_seconds = 0;  ///< keep drawing up to this long until the live run has ended
    std::string layout = "explain";
    std::string theme = "dark";
    double scale = 1.0;
    int width = 1600, height = 1000;
    bool run_demo = true;  ///< start the demo at once when nothing is opened
};

/// Runs the window until it is closed. No display: an error that says so.
Status run_gui(Controller& controller, const GuiOptions& options);
/// Is there a display to open a window on?
bool display_available();
/// Wakes an idle window; any thread.
void wake_gui();

}  // namespace draftscope
