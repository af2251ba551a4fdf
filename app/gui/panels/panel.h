#pragma once

#include <any>
#include <span>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "app/gui/models/ui_state.h"
#include "app/gui/panels/style.h"
#include "app/jobs/commands.h"
#include "capture/capture.h"

/// A panel is one file here, one line in registry.cpp and one pure model in app/gui/models. The shell opens
/// the window and calls `draw` inside it, every frame in which it is visible.
namespace draftscope {

/// Keeps what a panel remembers between frames (its built model, scroll position): one object per type.
class PanelMemory {
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

struct PanelContext {
    const Snapshot& snapshot;
    const JobStatus& status;
    UiState& ui;
    RunConfig& config;   ///< what the next run will use; the Session panel edits it, others may set a field
    Commands& commands;  ///< append; handed to the jobs after the frame
    const Style& style;
    PanelMemory& memory;
    bool picture = false;  ///< for a file: nothing that only a person at the window can use
};

/// Places of the layouts; app/gui/shell/layout.cpp says how large each is.
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
    const char* id;     ///< stable: layout files know the window by it
    const char* title;  ///< shown; may change without losing the layout
    DockPlace place;
    int order;  ///< among the tabs of its place, 0 = in front
    bool open;  ///< in the default layout
    void (*draw)(PanelContext&);
    float least_width, least_height;  ///< of its contents in text sizes; smaller windows scroll
};
/// All panels, in the order of the View menu.
std::span<const Panel> panels();

/// Explains an empty panel in its middle, wrapped and dimmed.
void draw_empty_text(const Style& style, std::string_view text);

}  // namespace draftscope
