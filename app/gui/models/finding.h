#pragma once

#include <cstddef>
#include <optional>

#include "app/gui/models/selection.h"
#include "capture/capture.h"

/// Finds rounds worth looking at in a long run.
namespace draftscope {

/// What a round is looked for by.
enum class RoundMark {
    rejected,     ///< the target chose another token than those drafted
    outside_set,  ///< ... one that the head could not draft
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

}  // namespace draftscope
