#pragma once

#include <imgui.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/entry.h"
#include "app/gui/models/selection.h"
#include "app/gui/models/unsaved.h"
#include "app/gui/panels/panel.h"
#include "app/gui/shell/actions.h"
#include "app/gui/shell/path_dialog.h"
#include "app/gui/shell/settings.h"
#include "app/jobs/controller.h"

namespace draftscope {

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
    /// Of live runs: rounds that lie in no file.
    std::size_t unsaved_rounds() const { return unsaved_.count(*snapshot_); }
    /// A short message over the panels; "" = none.
    const std::string& notice() const { return notice_; }
    /// Seconds after which the window changes by itself; infinity = never.
    double seconds_to_change() const;

  private:
    // app.cpp
    PanelContext context();
    void handle_keys();
    bool arrange(ImVec2 room);
    void draw_panels();
    void adopt_defaults();
    void adopt_status(JobStatus status);
    void submit_commands();
    /// Does what drops the runs in memory, when they are saved or a person says that they need not be.
    void leave(std::function<void()> what);
    void open_file(const std::string& path);
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
    void draw_recent_files();
    void draw_notice();
    // popups.cpp
    void draw_popups();
    void draw_help();
    void draw_palette();
    void draw_leaving();
    void draw_file_dialogs();
    // keeping.cpp
    void adopt_settings();
    void keep_settings(bool at_once);

    Controller& controller_;
    GuiOptions options_;
    Settings settings_;       ///< of which open panels and session are brought up to date when they are kept
    Settings kept_settings_;  ///< as the file has them
    TimeNs settings_kept_at_ = 0;
    Style style_;
    UiState ui_;
    RunConfig config_, demo_config_;
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
    UnsavedRounds unsaved_;
    std::size_t rounds_being_saved_ = 0;
    std::function<void()> leaving_;  ///< what waits for a person's word on unsaved runs
    std::string notice_;
    TimeNs notice_until_ = 0;
    std::string wanted_layout_;
    float applied_scale_ = 0;
    ThemeId applied_theme_ = ThemeId::dark;
    int frames_ = 0;
    bool help_requested_ = false, palette_requested_ = false, guide_open_ = false, quit_ = false;
    bool defaults_adopted_ = false, demo_is_next_ = false, demo_is_running_ = false;
    bool leaving_requested_ = false, leave_when_saved_ = false;
    bool field_takes_focus_ = false;  ///< from the next frame on
};

}  // namespace draftscope
