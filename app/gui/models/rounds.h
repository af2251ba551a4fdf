#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/ui_state.h"
#include "capture/acceptance_by_depth.h"
#include "capture/capture.h"

/// What the Rounds panel draws: one cell per round of a run, how many tokens were accepted, and what took the
/// time.
namespace draftscope {

struct RoundCell {
    std::size_t index = 0;  ///< into Snapshot::rounds
    int ordinal = 0;        ///< in the run, from 1
    int accepted = 0, committed = 0, depth = 0;
    int dominant_phase = 0;     ///< phase with the most critical time in the round's step; remainder included
    double dominant_share = 0;  ///< of the step
    TimeNs step_ns = 0;         ///< pauses taken out
    Excluded excluded = Excluded::no;
    bool clipped = false;
    bool first_of_prompt = false;
};

struct RoundsModel {
    RowId run_id = 0;
    std::vector<RoundCell> cells;
    int tallest = 1;  ///< largest accepted count or tree depth

    std::size_t position_of(
        std::size_t round_index) const;  ///< of a round in `cells`; cells.size() if absent
};
/// Appends what is new; starts over when the run differs or the snapshot has fewer rounds than were seen.
void update_rounds(RoundsModel& model, const Snapshot& snapshot, RowId run_id);

struct AcceptanceModel {
    std::vector<std::int64_t> histogram;  ///< [accepted tokens] = rounds
    std::vector<DepthAcceptance> depths;  ///< [depth - 1]
    std::int64_t rounds = 0;
    double tau = 0;
};
/// Over all rounds of the run, or those that touch `range`: acceptance does not depend on what a step took,
/// so warm-up and calibration count as they do in `replay`.
AcceptanceModel build_acceptance(const RoundsModel& rounds, const Snapshot& snapshot,
                                 const std::optional<TimeRange>& range);

/// Why the charts are empty, for a model without rounds.
std::string no_rounds_text(bool in_range);

/// The round under way as a cell after those of `model`; absent when there is none. No statistic has it.
std::optional<RoundCell> cell_in_flight(const RoundsModel& model, const Snapshot& snapshot,
                                        const UiState& ui);
/// "Round 13, under way: 6 drafted down to depth 2; 1.31 ms so far"
std::string describe_in_flight(const RoundCell& cell, const Snapshot& flight);

/// "Round 12: 3 of 3 accepted, 4 committed; 18.2 ms, verify 61 %"
std::string describe_round(const RoundCell& cell);

}  // namespace draftscope
