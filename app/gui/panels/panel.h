#pragma once

#include <algorithm>
#include <any>
#include <chrono>
#include <span>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "app/gui/models/selection.h"
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

/// Decides when a panel rebuilds its model. If the selection changed or nothing is running, it rebuilds at
/// once. While data streams in, builds take at most a twentieth of the time.
class RebuildThrottle {
  public:
    /// Calls `build` if it is time to. `key`: a hash of everything that the model depends on in the
    /// selection.
    template <typename Build>
    void update(const PanelContext& context, std::uint64_t key, Build&& build) {
        const bool stale = !valid_ || key != key_ || source_ != context.snapshot.source,
                   changed = context.ui.data_key != data_key_;
        const bool streaming =
            context.status.state == JobState::running || context.status.state == JobState::loading;
        if (!stale && (!changed || (streaming && ImGui::GetTime() < not_before_))) return;
        const auto start = std::chrono::steady_clock::now();
        build();
        const double cost = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        not_before_ = ImGui::GetTime() + std::min(20.0 * cost, 2.0);
        key_ = key;
        source_ = context.snapshot.source;
        data_key_ = context.ui.data_key;
        valid_ = true;
    }

  private:
    bool valid_ = false;
    std::uint64_t key_ = 0, data_key_ = 0;
    std::string source_;
    double not_before_ = 0;
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
