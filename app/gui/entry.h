#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/result.h"

/// Entry points of the window. This header does not expose ImGui.
namespace draftscope {

class Controller;
struct Snapshot;
struct SweepReport;

struct GuiOptions {
    std::vector<std::string> files;  ///< the first is shown, the others can be compared with it
    std::string overlay;             ///< imported timeline, shown below our own
    std::string watch;               ///< address of a server to send `watched` to; "" = none
    RunConfig watched;               ///< as CmdWatchServer::prompts, or the session at the start
    bool sets_session = false;       ///< `watched` has the session
    bool sets_drafter = false;       ///< ... with a drafter
    std::string screenshot;          ///< PNG path: draw off-screen and return
    int frames = 3;                  ///< minimum number of frames before the screenshot
    double wait_seconds = 120;       ///< maximum wait for the live run before the screenshot
    std::string layout;              ///< "" = as in the settings, initially explain
    std::string theme;               ///< "" = as in the settings, initially dark
    std::string settings_file;       ///< settings file; "" = none
    double scale = 1.0;
    int width = 1600, height = 1000;
    bool run_demo = true;  ///< start the demo if nothing is opened or watched and no session is stored
};

struct PlotOptions {
    std::string out;                 ///< folder, created if missing; or, for one plot, a file ending in .png
    std::vector<std::string> plots;  ///< names of plot_names(); empty = all
    std::string theme = "light";
    double scale = 1.0;
    int width = 1200, height = 750;
    std::int64_t run = 0;  ///< run id, 0 = the newest
    int round = 0;         ///< for the tree: round of the run, from 1; 0 = most committed tokens
    std::vector<std::shared_ptr<const SweepReport>> sweeps;  ///< of the capture; the first is drawn
};
/// Returns breakdown, plane, coverage, tree, sweep, ...
std::vector<std::string> plot_names();
/// Draws panels off-screen into PNG files with the window's drawing code. Returns the written files.
Result<std::vector<std::string>> render_plots(const Snapshot& snapshot, const PlotOptions& options);

/// Runs the window until it is closed. Returns an error without a display.
Status run_gui(Controller& controller, const GuiOptions& options);
/// Returns true if a window can be opened.
bool display_available();
/// Wakes an idle window. Callable from any thread.
void wake_gui();

}  // namespace draftscope
