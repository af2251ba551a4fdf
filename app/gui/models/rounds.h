#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/finding.h"
#include "app/gui/models/selection.h"
#include "capture/acceptance_by_depth.h"
#include "capture/capture.h"

/// Model of the Rounds panel: one cell per round with its accepted tokens and its longest phase.
namespace draftscope {

/// A round as a cell of the strip.
struct RoundCell {
    std::size_t index = 0;    ///< into Snapshot::rounds
    int column = 0, row = 0;  ///< its step, and its sequence of a batch
    int ordinal = 0;          ///< in the run, from 1
    int accepted = 0, committed = 0;
    int depth = 0;              ///< negative = not known
    int dominant_phase = 0;     ///< longest phase by exposed time, or the remainder; 0 = not known
    double dominant_share = 0;  ///< fraction of the step
    TimeNs step_ns = 0;         ///< without pauses
    Excluded excluded = Excluded::no;
    bool clipped = false;
    bool first_of_prompt = false;
    std::string drafter;  ///< as in RoundRow
};

struct RoundsModel {
    /// A row shows one sequence after another.
    struct SequenceRow {
        RowId prompt_id = 0;
        int last_column = 0;
    };
    std::string source;  ///< Snapshot::source
    RowId run_id = 0;
    int columns = 0;                ///< steps
    std::vector<SequenceRow> rows;  ///< one, except of a batch
    std::vector<RoundCell> cells;
    int tallest = 1;                ///< largest accepted count or tree depth
    std::vector<RoundNotes> notes;  ///< of the rounds with breakpoints or bookmarks

    std::size_t find_cell(std::size_t round_index) const;  ///< index into `cells`; cells.size() if absent
};
/// Appends new rounds. Starts over if the run or the file changed or the snapshot has fewer rounds than
/// before.
void update_rounds(RoundsModel& model, const Snapshot& snapshot, RowId run_id);

/// Rounds that share a column of the overview.
struct OverviewColumn {
    std::size_t first = 0, count = 0;  ///< cells
    std::size_t slowest = 0;           ///< the cell of the longest step that counts; `first` if none does
    double accepted = 0;               ///< mean
    TimeNs slowest_ns = 0;             ///< 0 = no step counts
};
/// Spreads the cells over at most `columns` columns.
std::vector<OverviewColumn> build_overview(const RoundsModel& model, std::size_t columns);

/// Returns the round that shows best why a draft is rejected; absent without a rejection. It has the longest
/// accepted path before a rejection, and of such rounds the likeliest rejected draft.
std::optional<std::size_t> instructive_rejection(const Snapshot& snapshot, RowId run_id);

/// Histograms of accepted tokens.
struct AcceptanceModel {
    std::vector<std::int64_t> histogram;  ///< [accepted tokens] = rounds
    std::vector<DepthAcceptance> depths;  ///< [depth - 1]
    std::int64_t rounds = 0;
    double tau = 0;
};
/// Counts acceptance over all rounds of the run, or over those that overlap `range`. Acceptance does not
/// depend on time, so warm-up and calibration rounds count, as in `replay`.
AcceptanceModel build_acceptance(const RoundsModel& rounds, const Snapshot& snapshot,
                                 const std::optional<TimeRange>& range);

/// Returns why the charts of a model without rounds are empty.
std::string no_rounds_text(bool in_range);

/// Returns the round in flight, if any, as a cell after those of `model`. No statistic includes it.
std::optional<RoundCell> cell_in_flight(const RoundsModel& model, const Snapshot& snapshot,
                                        const UiState& ui);
/// Returns "Round 13, in progress: 6 drafted to depth 2; 1.31 ms so far".
std::string describe_in_flight(const RoundCell& cell, const Snapshot& flight);

/// Returns "Round 12: 3 of 3 accepted, 4 committed; 18.2 ms, verify 61 %".
std::string describe_round(const RoundCell& cell);

}  // namespace draftscope
