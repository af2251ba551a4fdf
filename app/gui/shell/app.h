#pragma once

#include <imgui.h>

#include <memory>
#include <string>
#include <vector>

#include "app/gui/entry.h"
#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/shell/actions.h"
#include "app/gui/shell/path_dialog.h"
#include "app/jobs/controller.h"

namespace draftscope {

/// Kept in the layout file beside ImGui's own entries.
struct Settings {
    ThemeId theme = ThemeId::dark;
    float user_scale = 1.0f;
    std::string layout = "explain";
    bool guide_seen = false;
};

/// The window's contents, whatever draws them. The ImGui and ImPlot contexts belong to the caller and must
/// exist; every frame is `prepare` - NewFrame - `frame` - Render.
class App {
  public:
    App(Controller& controller, const GuiOptions& options);
    ~App();
    App(const App&) = delete;
    App& operator=(const App&) = delete;

    /// Takes the newest snapshot and status; applies theme and scale. Between frames. True when something
    /// changed that has to be drawn.
    bool prepare(float monitor_scale);
    /// Draws everything and hands the frame's commands to the controller.
    void frame();

    void perform(ActionId id);
    bool wants_quit() const { return quit_; }
    /// The controller has said what it can do and the first commands are on their way.
    bool ready() const { return defaults_adopted_; }
    const JobStatus& status() const { return status_; }
    const Snapshot& snapshot() const { return *snapshot_; }
    const Palette& colours() const { return style_.colours; }
    UiState& ui() { return ui_; }
    RunConfig& config() { return config_; }
    Settings& settings() { return settings_; }
    void request_layout(std::string_view name);
    std::string title() const;

  private:
    // app.cpp
    PanelContext context();
    void handle_keys();
    bool arrange(ImVec2 room);
    void draw_panels();
    void adopt_defaults();
    // chrome.cpp
    void draw_menu_bar();
    void draw_tool_bar();
    void draw_run_buttons();
    void draw_round_buttons();
    void draw_activity(float right_edge);
    void draw_numbers(float height);
    void draw_error();
    void draw_banners();
    void draw_status_line();
    // popups.cpp
    void draw_popups();
    void draw_help();
    void draw_palette();
    // settings.cpp
    void register_settings();

    Controller& controller_;
    GuiOptions options_;
    Settings settings_;
    Style style_;
    UiState ui_;
    RunConfig config_;
    PanelMemory memory_;
    Commands commands_;
    JobStatus status_;
    std::shared_ptr<const Snapshot> snapshot_;
    HeaderNumbers numbers_;
    std::uint64_t numbers_key_ = 0;
    RowId watched_prompt_ = 0;  ///< as the jobs know it
    RowId numbers_run_ = 0;
    PathDialog open_dialog_, save_dialog_, other_dialog_;
    std::string palette_filter_;
    int palette_choice_ = 0;
    std::string dismissed_error_;
    std::string wanted_layout_;
    float applied_scale_ = 0;
    ThemeId applied_theme_ = ThemeId::dark;
    int frames_ = 0;
    bool help_requested_ = false, palette_requested_ = false, guide_open_ = false, quit_ = false;
    bool defaults_adopted_ = false;
    bool field_takes_focus_ = false;  ///< from the next frame on
};

/// "draftscope/layout.ini" in the XDG config folder, made when missing; "" when there is no home.
std::string layout_file();

}  // namespace draftscope
