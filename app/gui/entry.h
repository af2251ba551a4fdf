#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

/// The window's only door: shows no ImGui.
namespace draftscope {

class Controller;
struct Snapshot;

struct GuiOptions {
    std::vector<std::string> files;  ///< the first is shown, the others are there to be compared with
    std::string beside;              ///< another profiler's file, shown under our own timeline
    std::string screenshot;          ///< PNG path: render off-screen and leave
    int frames = 3;                  ///< frames to draw before the screenshot
    double wait_seconds = 120;       ///< keep drawing up to this long until the live run has ended
    std::string layout;              ///< "" = as the window was left, at first explain
    std::string theme;               ///< "" = as the window was left, at first dark
    std::string settings_file;       ///< where a window keeps its settings; "" = nowhere
    double scale = 1.0;
    int width = 1600, height = 1000;
    bool run_demo = true;  ///< start the demo at once when nothing is opened and the session is the demo's
};

struct PlotOptions {
    std::string out;                 ///< a folder, made when missing; or, for one plot, a file ending in .png
    std::vector<std::string> plots;  ///< of plot_names(); empty = all
    std::string theme = "light";
    double scale = 1.0;
    int width = 1200, height = 750;
    std::int64_t run = 0;  ///< run id, 0 = the newest
    int round = 0;         ///< for the tree: which round of the run, from 1; 0 = the one that committed most
};
/// breakdown, plane, coverage, tree.
std::vector<std::string> plot_names();
/// Draws panels into pictures by the window's own drawing code, off-screen. Returns the files written.
Result<std::vector<std::string>> render_plots(const Snapshot& snapshot, const PlotOptions& options);

/// Runs the window until it is closed. No display: an error that says so.
Status run_gui(Controller& controller, const GuiOptions& options);
/// Is there a display to open a window on?
bool display_available();
/// Wakes an idle window; any thread.
void wake_gui();

}  // namespace draftscope
