#pragma once

#include <imgui.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "app/gui/entry.h"
#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/shell/path_dialog.h"
#include "app/gui/shell/settings.h"
#include "app/jobs/controller/controller.h"
#include "base/units.h"

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
/// Returns the table of all actions of keys, menus and the command palette.
std::span<const Action> actions();
const Action& action(ActionId id);

struct Snapshot;

/// Counts the rounds of live runs that are in no file.
class UnsavedRounds {
  public:
    /// Updates the count for a new snapshot. `kept`: its new runs need no saving, because they are recorded
    /// to a file or belong to the automatic demo.
    void update(const Snapshot& snapshot, bool kept);
    /// Marks the first `rounds` rounds of the snapshot as saved.
    void save(std::size_t rounds) { saved_rounds_ = rounds; }
    /// Returns the number of unsaved rounds.
    std::size_t count(const Snapshot& snapshot) const;

  private:
    std::string source_;
    std::size_t saved_rounds_ = 0, known_rounds_ = 0;
    std::set<RowId> known_, kept_;
};

/// The window's contents, independent of the back end. The caller owns the ImGui and ImPlot contexts, which
/// must exist. Call prepare(), NewFrame, frame(), Render for every frame.
class App {
  public:
    App(Controller& controller, const GuiOptions& options);
    ~App();
    App(const App&) = delete;
    App& operator=(const App&) = delete;

    /// Gets the newest snapshot and status; applies theme and scale. Call between frames. Returns true if
    /// something changed that must be drawn.
    bool prepare(float monitor_scale);
    /// Draws all windows and submits the frame's commands to the controller.
    void frame();

    void perform(ActionId id);
    bool wants_quit() const { return quit_; }
    /// Returns true once the controller's defaults are known and the first commands are submitted.
    bool ready() const { return defaults_applied_; }
    const JobStatus& status() const { return status_; }
    const Snapshot& snapshot() const { return *snapshot_; }
    const Palette& colours() const { return style_.colours; }
    UiState& ui() { return ui_; }
    RunConfig& config() { return config_; }
    Settings& settings() { return settings_; }
    void request_layout(std::string_view name);
    std::string title() const;
    /// Returns the number of live rounds that are in no file.
    std::size_t unsaved_rounds() const { return unsaved_.count(*snapshot_); }
    /// Returns the short message shown over the panels; "" = none.
    const std::string& notice() const { return notice_; }
    /// Returns the seconds until the window changes by itself; infinity = never.
    double seconds_to_change() const;

  private:
    // app.cpp
    PanelContext context();
    void handle_keys();
    void set_flag(ActionId id);
    bool arrange(ImVec2 room);
    void draw_panels();
    void apply_defaults();
    void apply_status(JobStatus status);
    void submit_commands();
    void play_slowly();
    /// Runs an action that drops the runs in memory. If rounds are unsaved, a dialog comes first.
    void confirm_leaving(std::function<void()> what);
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
    void apply_settings();
    void store_settings(bool at_once);

    Controller& controller_;
    GuiOptions options_;
    Settings settings_;         ///< open panels and session are updated before saving
    Settings stored_settings_;  ///< contents of the settings file
    TimeNs settings_stored_at_ = 0;
    Style style_;
    UiState ui_;
    RunConfig config_, demo_config_;
    PanelState panel_state_;
    Commands commands_;
    JobStatus status_;
    std::shared_ptr<const Snapshot> snapshot_;
    HeaderNumbers numbers_;
    std::uint64_t numbers_key_ = 0;
    RowId watched_prompt_ = 0;  ///< last prompt submitted to the jobs
    RowId numbers_run_ = 0;
    PathDialog open_dialog_, save_dialog_, other_dialog_;
    std::string palette_filter_;
    int palette_choice_ = 0;
    std::string dismissed_error_;
    UnsavedRounds unsaved_;
    std::size_t rounds_being_saved_ = 0;
    std::function<void()> leaving_;  ///< action that waits for the dialog on unsaved rounds
    std::string notice_;
    TimeNs notice_until_ = 0;
    std::string wanted_layout_;
    float applied_scale_ = 0;
    ThemeId applied_theme_ = ThemeId::dark;
    int frames_ = 0;
    bool help_requested_ = false, palette_requested_ = false, guide_open_ = false, quit_ = false;
    bool defaults_applied_ = false, demo_is_next_ = false, demo_is_running_ = false;
    bool plays_slowly_ = false;            ///< the first round of the demo, level by level
    std::optional<TimeNs> next_level_at_;  ///< of the slow play
    bool leaving_requested_ = false, leave_when_saved_ = false;
    bool field_takes_focus_ = false;  ///< starting with the next frame
};

}  // namespace draftscope
