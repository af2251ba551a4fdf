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

/// Brings the selection in line with a new snapshot. A run that appears, or another file, takes the selection
/// and turns following on; while following, the newest round of the run is selected.
void sync_selection(const Snapshot& snapshot, UiState& ui);

/// Moves by `delta` rounds inside the run, clipped; ends following unless it arrives at the newest.
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
