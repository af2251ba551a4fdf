#pragma once

#include "app/gui/models/ui_state.h"
#include "capture/capture.h"

/// Which run and round the window shows: follows the newest while nobody chose, and never dangles.
namespace draftscope {

/// Rounds of one run as a half-open range of indices into Snapshot::rounds (runs are recorded one after
/// another).
struct RoundSpan {
    std::size_t first = 0, end = 0;
    std::size_t size() const { return end - first; }
};
RoundSpan rounds_of_run(const Snapshot& snapshot, RowId run_id);

/// The round under way of the run that is selected, as a capture of one step; null = none.
const Snapshot* round_in_flight(const Snapshot& snapshot, const UiState& ui);
/// Is the round under way selected?
inline bool in_flight_selected(const Snapshot& snapshot, const UiState& ui) {
    return ui.in_flight && round_in_flight(snapshot, ui) != nullptr;
}

/// Brings the selection in line with a new snapshot. Another file, or a run that has something to show (a
/// round, one under way, or its end), takes the selection and turns following on; while following, the newest
/// round of the run is selected, which is the one under way where there is one.
void sync_selection(const Snapshot& snapshot, UiState& ui);

/// "Round 3 of 12", "Round 13 under way", "No round yet".
std::string round_position(const Snapshot& snapshot, const UiState& ui);

/// Moves by `delta` rounds inside the run, the one under way last, clipped. Going back ends following.
void step_selection(const Snapshot& snapshot, UiState& ui, int delta);
void select_run(const Snapshot& snapshot, UiState& ui, RowId run_id);
/// Prompt of the selected round of a live run with several sequences in lockstep, while the selection does
/// not follow; 0 = none in particular.
RowId watched_prompt(const Snapshot& snapshot, const UiState& ui);
void set_follow(const Snapshot& snapshot, UiState& ui, bool follow);

/// What the tool bar says about the selected run; texts are "-" while unknown.
struct HeaderNumbers {
    std::string tau = "-", tokens_per_second = "-", speedup = "-";
    std::string speedup_why;  ///< how it was measured, or what to do to get it
};
HeaderNumbers header_numbers(const Snapshot& snapshot, RowId run_id);

/// The status line's part that the capture knows: tier, counts of losses by kind ("no losses").
std::string losses_text(const Snapshot& snapshot, RowId run_id);
/// "SmolLM2-135M-Instruct.Q4_1.gguf" from a path or spec; never longer than `longest` characters.
std::string short_name(std::string_view path, std::size_t longest = 40);

}  // namespace draftscope
