#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "capture/capture.h"

/// Selection of the run and round that the window shows. It follows the newest round until the user selects
/// one.
namespace draftscope {

struct TimeRange {
    TimeNs start_ns = 0;  ///< since the start of the selected run
    TimeNs end_ns = 0;
    bool operator==(const TimeRange&) const = default;
};

/// A panel's request for the dialog that chooses a path; without `use` there is none.
struct BrowseRequest {
    std::function<void(const std::string&)> use;  ///< gets the chosen path
    std::vector<std::string> endings;             ///< of the files that are listed
    bool folders = false;                         ///< a folder may be chosen
    std::string from;                             ///< its folder is shown first; "" = the last one
};

/// A round of an open capture.
struct CapturedRound {
    std::string source;  ///< Snapshot::source
    RowId run_id = 0;
    std::size_t round = 0;  ///< index into its Snapshot::rounds
    bool operator==(const CapturedRound&) const = default;
};

/// State shared by all panels: the selection and common switches.
struct UiState {
    RowId run_id = 0;                  ///< selected run; 0 = none
    std::optional<std::size_t> round;  ///< selected round, index into Snapshot::rounds; absent if `in_flight`
    bool in_flight = false;            ///< the round in flight is selected (Snapshot::in_flight)
    bool follow = true;                ///< keep the newest round selected
    std::optional<TimeRange> range;    ///< selected in the timeline; limits the panels' tables
    TokenId hovered_token = no_token;  ///< under the mouse in any panel, marked in all; reset each frame
    RowId stopped_prompt = 0;    ///< the held engine's sequence of a batch, which following selects; 0 = any
    bool fit_requested = false;  ///< key F, for one frame: views show everything
    bool fit_run_requested = false;      ///< Shift+F, for one frame: the timeline shows the whole run
    bool find_requested = false;         ///< Ctrl+F, for one frame: the Text panel takes the focus
    bool open_other_requested = false;   ///< open the dialog for another capture
    BrowseRequest browse;                ///< reset when the dialog opens
    bool other_run_requested = false;    ///< key T, for one frame: see show_other_run()
    std::optional<CapturedRound> place;  ///< to select before the next frame, which resets it
    std::string focus_panel;             ///< id of a panel to open and bring to the front; reset each frame
    std::string focus_field;             ///< label of the Session panel's field that takes the keyboard focus
    bool compare_newest = false;  ///< Compare takes the newest run and its baseline until the user chooses
    std::uint64_t data_key = 0;   ///< changes with the snapshot: cached models are then rebuilt
    std::map<std::string, bool, std::less<>> open;  ///< panel id -> shown; stored with the settings

    RowId newest_run = 0;  ///< last run that was selected automatically
    std::string source;    ///< source of the selection's snapshot

    /// Selects a finished round. Following ends unless it is the newest round.
    void select_round(std::size_t index, std::size_t round_count) {
        follow = index + 1 == round_count && follow && !in_flight;
        round = index;
        in_flight = false;
    }
    void select_in_flight() {
        round.reset();
        in_flight = true;
    }
};

/// Rounds of one run: a half-open range of indices into Snapshot::rounds. Runs are contiguous.
struct RoundSpan {
    std::size_t first = 0, end = 0;
    std::size_t size() const { return end - first; }
};
RoundSpan rounds_of_run(const Snapshot& snapshot, RowId run_id);
/// Returns the newest run that is no baseline; a baseline only if there is no other run.
RowId newest_run(const Snapshot& snapshot);

/// Returns the selected run's round in flight as a capture of one step; null = none.
const Snapshot* round_in_flight(const Snapshot& snapshot, const UiState& ui);
inline bool in_flight_selected(const Snapshot& snapshot, const UiState& ui) {
    return ui.in_flight && round_in_flight(snapshot, ui) != nullptr;
}

/// Updates the selection for a new snapshot. A new file is selected, and so is a new run that has a round, a
/// round in flight or an end, unless it is a baseline; both turn following on. While following, the run's
/// newest round is selected, including the round in flight; of a held batch that of ui.stopped_prompt.
void sync_selection(const Snapshot& snapshot, UiState& ui);

/// Returns "Round 3 of 12", "Round 13 in progress" or "No round yet"; of a batch "Round 3 of 12, prompt 2".
std::string round_position(const Snapshot& snapshot, const UiState& ui);

/// Moves the selection by `delta` rounds, clamped to the run; the round in flight is the last one. Moving
/// back ends following.
void step_selection(const Snapshot& snapshot, UiState& ui, int delta);
void select_run(const Snapshot& snapshot, UiState& ui, RowId run_id);
/// Returns the prompt of the selected round of a live batch run that is not followed; 0 = any prompt.
RowId watched_prompt(const Snapshot& snapshot, const UiState& ui);
void set_follow(const Snapshot& snapshot, UiState& ui, bool follow);

/// Toolbar numbers of the selected run; "-" while unknown.
struct HeaderNumbers {
    std::string tau = "-", tokens_per_second = "-", speedup = "-";
    std::string speedup_interval;      ///< "1.38 .. 1.71", of a run that has ended; "" = unknown
    std::vector<float> recent_speeds;  ///< tokens per second of the newest counted steps, oldest first
    std::string speed_unit = "tok/s";  ///< with the threads, unless they are all cores of the run's machine
    std::string speedup_why;           ///< how it was measured, or how to measure it
};
HeaderNumbers header_numbers(const Snapshot& snapshot, RowId run_id);

/// Returns the number of lost records by kind, or "no records lost".
std::string losses_text(const Snapshot& snapshot, RowId run_id);
/// Returns the last part of a path or spec, cut to at most `longest` characters.
std::string short_name(std::string_view path, std::size_t max_length = 40);
/// Returns drafter, head and tree as far as the run has them; "no drafter" of a plain run.
std::string run_drafting(const RunRow& run, std::string_view separator);

}  // namespace draftscope
