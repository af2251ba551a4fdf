#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/ui_state.h"
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

/// Rounds that reached a depth, and how many of them kept a token there. Clipped and excluded rounds stay
/// out.
struct DepthAcceptance {
    std::int64_t reached = 0;   ///< everything above was accepted and the tree had this depth
    std::int64_t accepted = 0;  ///< ... and a token of this depth too
    double rate() const {
        return reached == 0 ? 0 : static_cast<double>(accepted) / static_cast<double>(reached);
    }
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
    std::int64_t rounds = 0, left_out = 0;
    double tau = 0;
};
/// Over the run, or over the rounds that touch `range`.
AcceptanceModel build_acceptance(const RoundsModel& rounds, const Snapshot& snapshot,
                                 const std::optional<TimeRange>& range);

/// "Round 12: 3 of 3 accepted, 4 committed; 18.2 ms, verify 61 %"
std::string describe_round(const RoundCell& cell);

}  // namespace draftscope
