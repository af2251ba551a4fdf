#pragma once

#include <imgui.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "app/gui/entry.h"
#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/shell/path_dialog.h"
#include "app/gui/shell/settings.h"
#include "app/jobs/controller/controller.h"
#include "base/units.h"

namespace draftscope {

// One line per action of keys, menus and the command palette, in the order of the menus; see Action.
#define DS_ACTIONS(ACTION)                                                                               \
    ACTION(open_file, "File", "Open capture...", ctrl | ImGuiKey_O, "Ctrl+O", "open a capture file")     \
    ACTION(watch_server, "File", "Watch a server...", ImGuiKey_None, "",                                 \
           "send prompts to a server of another engine and show its rounds")                             \
    ACTION(save_copy, "File", "Save a copy...", ctrl | ImGuiKey_S, "Ctrl+S",                             \
           "save the shown capture to a file")                                                           \
    ACTION(quit, "File", "Quit", ctrl | ImGuiKey_Q, "Ctrl+Q", "close the window")                        \
    ACTION(run_pause, "Run", "Run / pause", ImGuiKey_Space, "Space", "start, pause or continue a run")   \
    ACTION(stop, "Run", "Stop", shift | ImGuiKey_Space, "Shift+Space",                                   \
           "end the run; recorded rounds are kept")                                                      \
    ACTION(find_fastest, "Run", "Find the fastest setting", ImGuiKey_None, "",                           \
           "record, measure, search, and run what is advised")                                           \
    ACTION(step_round, "Run", "Step one round", ImGuiKey_F10, "F10", "run one round, then pause")        \
    ACTION(step_level, "Run", "Step one level", ImGuiKey_F11, "F11",                                     \
           "run one level of the draft tree, then pause")                                                \
    ACTION(step_phase, "Run", "Step one phase", shift | ImGuiKey_F11, "Shift+F11",                       \
           "run one phase, then pause")                                                                  \
    ACTION(previous_round, "Go", "Previous round", ImGuiKey_Comma, ",", "select the previous round")     \
    ACTION(next_round, "Go", "Next round", ImGuiKey_Period, ".", "select the next round")                \
    ACTION(first_round, "Go", "First round", ImGuiKey_Home, "Home", "select the first round of the run") \
    ACTION(last_round, "Go", "Last round", ImGuiKey_End, "End", "select the last round of the run")      \
    ACTION(slowest, "Go", "Slowest round", ImGuiKey_M, "M",                                              \
           "select the slowest round; again: the next slower ones")                                      \
    ACTION(next_rejected, "Go", "Next rejection", ImGuiKey_R, "R",                                       \
           "select the next round that rejected a draft")                                                \
    ACTION(previous_rejected, "Go", "Previous rejection", shift | ImGuiKey_R, "Shift+R",                 \
           "select the previous round that rejected a draft")                                            \
    ACTION(next_outside, "Go", "Next out-of-vocabulary token", ImGuiKey_O, "O",                          \
           "select the next round whose token the head could not draft")                                 \
    ACTION(previous_outside, "Go", "Previous out-of-vocabulary token", shift | ImGuiKey_O, "Shift+O",    \
           "select the previous such round")                                                             \
    ACTION(other_run, "Go", "Same text in the other run", ImGuiKey_T, "T",                               \
           "select the round of Compare's other run at the same place of the text")                      \
    ACTION(bookmark, "Go", "Bookmark", ImGuiKey_B, "B",                                                  \
           "mark the selected round with a text, or remove its mark")                                    \
    ACTION(edit_bookmark, "Go", "Edit the bookmark", shift | ImGuiKey_B, "Shift+B",                      \
           "change the text of the selected round's bookmark")                                           \
    ACTION(next_bookmark, "Go", "Next bookmark", ImGuiKey_N, "N",                                        \
           "select the next round that you have bookmarked")                                             \
    ACTION(previous_bookmark, "Go", "Previous bookmark", shift | ImGuiKey_N, "Shift+N",                  \
           "select the previous round with a bookmark")                                                  \
    ACTION(follow, "Go", "Follow the newest round", ImGuiKey_L, "L", "keep the newest round selected")   \
    ACTION(fit, "Go", "Fit views, timeline to the step", ImGuiKey_F, "F",                                \
           "fit tree and plots to their contents, the timeline to the step or range")                    \
    ACTION(fit_run, "Go", "Show the whole run", shift | ImGuiKey_F, "Shift+F",                           \
           "show the whole run in the timeline")                                                         \
    ACTION(leave_range, "Go", "Clear the range", ImGuiKey_Escape, "Esc",                                 \
           "show the whole run in tables and plots")                                                     \
    ACTION(find, "Go", "Find in text", ctrl | ImGuiKey_F, "Ctrl+F", "search the output")                 \
    ACTION(palette, "Go", "Command palette", ctrl | ImGuiKey_K, "Ctrl+K", "find and run any command")    \
    ACTION(theme_dark, "View", "Dark theme", ImGuiKey_None, "", "dark background")                       \
    ACTION(theme_light, "View", "Light theme", ImGuiKey_None, "", "light background")                    \
    ACTION(larger, "View", "Larger", ctrl | ImGuiKey_Equal, "Ctrl+=", "larger text and controls")        \
    ACTION(smaller, "View", "Smaller", ctrl | ImGuiKey_Minus, "Ctrl+-", "smaller text and controls")     \
    ACTION(normal_size, "View", "Normal size", ctrl | ImGuiKey_0, "Ctrl+0",                              \
           "text size of the monitor's scale")                                                           \
    ACTION(layout_explain, "View", "Layout: explain", ctrl | ImGuiKey_1, "Ctrl+1",                       \
           "tree and plane in front")                                                                    \
    ACTION(layout_profile, "View", "Layout: profile", ctrl | ImGuiKey_2, "Ctrl+2",                       \
           "timeline and phases in front")                                                               \
    ACTION(layout_compare, "View", "Layout: compare", ctrl | ImGuiKey_3, "Ctrl+3",                       \
           "two runs side by side, with the plane")                                                      \
    ACTION(layout_choose, "View", "Layout: choose", ctrl | ImGuiKey_4, "Ctrl+4",                         \
           "sweep, advisor and matrix in front")                                                         \
    ACTION(reset_layout, "View", "Reset layout", ImGuiKey_None, "", "put all panels back in place")      \
    ACTION(help, "Help", "Keys and terms", shift | ImGuiKey_Slash, "?", "this list")                     \
    ACTION(guide, "Help", "Show the guide", ImGuiKey_F1, "F1", "the introduction of the first start")

#define DS_NAME_ACTION(id, ...) id,
enum class ActionId { DS_ACTIONS(DS_NAME_ACTION) };
#undef DS_NAME_ACTION

/// A command with its menu entry and shortcut.
struct Action {
    ActionId id;
    const char* menu;  ///< "Run", "View", ...
    const char* title;
    ImGuiKeyChord chord;  ///< ImGuiKey_None = no key
    const char* keys;     ///< the shortcut's name, "Ctrl+O"
    const char* what;     ///< one line for the help window
};
std::span<const Action> actions();

/// Counts the rounds of live runs that are in no file.
class UnsavedRounds {
  public:
    /// Updates the count for a new snapshot. `kept`: its new runs need no saving, because they are recorded
    /// to a file or belong to the automatic demo.
    void update(const Snapshot& snapshot, bool kept);
    /// Marks the first `rounds` rounds and `notes` notes of the snapshot as saved.
    void save(std::size_t rounds, std::size_t notes) {
        saved_rounds_ = rounds;
        saved_notes_ = notes;
    }
    /// Returns the number of unsaved rounds; of saved ones, those that were bookmarked since.
    std::size_t count(const Snapshot& snapshot) const;

  private:
    std::string source_;
    std::size_t saved_rounds_ = 0, saved_notes_ = 0, known_rounds_ = 0;
    std::set<RowId> known_, kept_;
};

/// A part of the window to save as a picture, in the units of the window.
struct PictureRequest {
    std::string path;
    float x = 0, y = 0, width = 0, height = 0;
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
    /// Takes a file or folder that was dropped on the window. Captures and other programs' files are opened;
    /// what a run or a search needs becomes part of the session.
    void drop(const std::string& path);
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
    std::size_t unsaved_rounds() const { return unsaved_.count(*own_); }
    /// Returns the short message shown over the panels; "" = none.
    const std::string& notice() const { return notice_; }
    /// Returns the picture that the user asked for, once.
    std::optional<PictureRequest> take_picture();
    /// Says how saving it went.
    void picture_saved(const Status& saved);
    /// Returns the seconds until the window changes by itself; infinity = never.
    double seconds_to_change() const;

  private:
    // app.cpp
    void handle_keys();
    void set_flag(ActionId id);
    /// Shows a notice for some seconds.
    void say(std::string text);
    /// Selects a round that was found; without one, says so.
    void go_to_round(std::optional<std::size_t> round, const char* none);
    void find_round(ActionId id);
    bool take_snapshot(JobStatus& status, bool stopped_elsewhere);
    /// Selects the slowest round, by a phase or by its step; called again, the next slower one.
    void find_slowest(std::optional<int> phase);
    bool arrange(ImVec2 room);
    void draw_panels();
    void draw_panel(const Panel& panel, PanelContext& context);
    void keep_tables(const std::string& tables, const std::string& path);
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
    void draw_help();
    void draw_palette();
    void draw_leaving();
    void change_bookmark(bool edit);
    void keep_bookmark(std::string_view text);
    void draw_bookmark();
    void draw_file_dialogs();
    void draw_watch_dialog();
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
    std::optional<FormValues> submitted_forms_;  ///< with the last CmdCheck
    PanelState panel_state_;
    Commands commands_;
    JobStatus status_;
    std::shared_ptr<const Snapshot> own_;       ///< of the controller
    std::shared_ptr<const Snapshot> snapshot_;  ///< shown: `own_`, or a capture open for comparison
    std::string shown_other_;                   ///< source of that capture; "" = `own_` is shown
    HeaderNumbers numbers_;
    std::uint64_t numbers_key_ = 0;
    RowId watched_prompt_ = 0;  ///< last prompt submitted to the jobs
    RowId numbers_run_ = 0;
    PathDialog open_dialog_, save_dialog_, other_dialog_, browse_dialog_, picture_dialog_;
    BrowseRequest browsed_;   ///< that the dialog chooses for
    CmdWatchServer watched_;  ///< of the dialog
    std::string palette_filter_;
    int palette_choice_ = 0;
    std::string dismissed_error_;
    UnsavedRounds unsaved_;
    std::size_t rounds_being_saved_ = 0, notes_being_saved_ = 0;
    std::function<void()> leaving_;  ///< action that waits for the dialog on unsaved rounds
    std::string copied_panel_;       ///< id of the panel whose tables the next frame copies
    std::string tables_path_;        ///< CSV file that they go to; "" = the clipboard
    std::string saved_panel_;        ///< id of the panel of the picture dialog
    PictureRequest picture_;         ///< of the dialog
    std::optional<PictureRequest> wanted_picture_;
    int picture_from_ = 0;  ///< first frame without the dialog
    std::string notice_;
    TimeNs notice_until_ = 0;
    std::string wanted_layout_;
    float applied_scale_ = 0;
    ThemeId applied_theme_ = ThemeId::dark;
    int frames_ = 0;
    bool help_requested_ = false, palette_requested_ = false, watch_requested_ = false, guide_open_ = false,
         quit_ = false;
    bool defaults_applied_ = false, demo_is_next_ = false, demo_is_running_ = false;
    std::optional<std::size_t> slow_round_;  ///< that "Slowest round" selected last
    std::optional<int> slow_phase_;          ///< ... by this phase
    bool plays_slowly_ = false;              ///< the first round of the demo, level by level
    std::optional<TimeNs> next_level_at_;    ///< of the slow play
    NoteRow bookmark_;                       ///< of the dialog
    std::string bookmark_text_;              ///< edited in the dialog
    bool bookmark_requested_ = false, bookmark_exists_ = false;
    bool leaving_requested_ = false, leave_when_saved_ = false;
    bool field_takes_focus_ = false;  ///< starting with the next frame
};

}  // namespace draftscope
