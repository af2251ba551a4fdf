#pragma once

#include <any>
#include <span>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "app/gui/models/ui_state.h"
#include "app/gui/panels/style.h"
#include "app/jobs/commands/commands.h"
#include "capture/capture.h"

/// A panel is one file in this folder, one line in registry.cpp and one model in app/gui/models. The shell
/// opens the window and calls `draw` in every frame in which the window is visible.
namespace draftscope {

/// Keeps the panels' state between frames (models, scroll positions): one object per type.
class PanelState {
  public:
    template <typename T>
    T& get() {
        std::any& slot = slots_[std::type_index(typeid(T))];
        if (!slot.has_value()) slot.emplace<T>();
        return *std::any_cast<T>(&slot);
    }

  private:
    std::unordered_map<std::type_index, std::any> slots_;
};

/// Everything that a panel reads and writes.
struct PanelContext {
    const Snapshot& snapshot;
    const JobStatus& status;
    UiState& ui;
    RunConfig& config;   ///< settings of the next run, edited by Session and other panels
    Commands& commands;  ///< to append to; submitted to the jobs after the frame
    const Style& style;
    PanelState& panel_state;
    bool picture = false;  ///< drawn into a file: without interactive hints
};

/// Places of the layouts; app/gui/shell/layout.cpp has their sizes.
enum class DockPlace {
    left_top,
    left_bottom,
    centre,
    right_top,
    bottom_left,
    bottom_middle,
    bottom_right,
    strip
};

struct Panel {
    const char* id;     ///< stable: key in layout files
    const char* title;  ///< shown; may change without invalidating layouts
    DockPlace place;
    int order;  ///< order of its tab; 0 = in front
    bool open;  ///< open in the default layout
    void (*draw)(PanelContext&);
    float min_width, min_height;  ///< of the contents, in em; smaller windows scroll
};
/// Returns all panels, in the order of the View menu.
std::span<const Panel> panels();

/// Draws the explanation of an empty panel, centred, wrapped and dimmed.
void draw_empty_text(const Style& style, std::string_view text);

}  // namespace draftscope
