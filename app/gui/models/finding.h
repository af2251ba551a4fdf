#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/selection.h"
#include "capture/capture.h"

/// Finds rounds worth looking at in a long run.
namespace draftscope {

/// What a round is looked for by.
enum class RoundMark {
    rejected,     ///< the target chose another token than those drafted
    outside_set,  ///< ... one that the head could not draft
    bookmark,     ///< the user marked it
};
/// Returns the next (`step` 1) or previous (-1) such round of the run, as an index into Snapshot::rounds.
/// Absent if there is none on that side of `from`.
std::optional<std::size_t> find_marked_round(const Snapshot& snapshot, RowId run_id, std::size_t from,
                                             int step, RoundMark mark);

/// Returns the first round of the run's slowest counted step. With `from`, returns that of the step which
/// comes after the one of round `from` in the order from slow to fast, so that repeated calls visit the n-th
/// slowest; after the fastest, the slowest comes again. With a phase, steps are ordered by its exposed time.
/// Absent without a step.
std::optional<std::size_t> find_slow_round(const Snapshot& snapshot, RowId run_id,
                                           std::optional<std::size_t> from,
                                           std::optional<int> phase = std::nullopt);

/// Returns whether a note sets or removes a bookmark.
bool is_of_bookmark(const NoteRow& note);
/// What the notes of a capture say of a round.
struct RoundNotes {
    std::size_t round = 0;                ///< index into Snapshot::rounds
    std::string breakpoint;               ///< that stopped the run after it; "" = none
    std::optional<std::string> bookmark;  ///< its text; absent without a bookmark
};
/// Returns the rounds of a run that a breakpoint or a bookmark marks, in their order.
std::vector<RoundNotes> find_round_notes(const Snapshot& snapshot, RowId run_id);
/// Returns those of one round; null if it has none.
const RoundNotes* find_notes(const std::vector<RoundNotes>& notes, std::size_t round);
/// Returns "breakpoint: round 3; bookmark: look here".
std::string describe_notes(const RoundNotes& notes);

}  // namespace draftscope
