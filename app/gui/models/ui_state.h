#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/units.h"

/// What all panels share: the selection and the few switches that concern more than one of them. Plain data,
/// no ImGui, so that models and tests can use it.
namespace draftscope {

struct TimeRange {
    TimeNs start_ns = 0;  ///< since the start of the selected run
    TimeNs end_ns = 0;
    bool operator==(const TimeRange&) const = default;
};

struct UiState {
    RowId run_id = 0;                  ///< selected run; 0 while there is none
    std::optional<std::size_t> round;  ///< selected round, index into Snapshot::rounds; none with `in_flight`
    bool in_flight = false;            ///< the round under way is selected, Snapshot::in_flight
    bool follow = true;                ///< the selection stays on the newest round
    std::optional<TimeRange> range;    ///< set by dragging in the timeline; panels limit their tables to it
    TokenId hovered_token =
        no_token;                 ///< under the mouse in any panel: the others mark it too; reset each frame
    bool fit_requested = false;   ///< key F, for one frame: plots and trees fit their view
    bool find_requested = false;  ///< Ctrl+F, for one frame: the Text panel takes the focus
    bool open_other_requested = false;  ///< a panel wants the dialog for another capture
    std::uint64_t data_key = 0;  ///< grows when the snapshot changes: rebuild cached models when it differs
    std::map<std::string, bool, std::less<>> open;  ///< panel id -> shown; kept with the layout

    RowId newest_run = 0;  ///< last run that took over the selection when it appeared
    std::string source;    ///< of the snapshot that the selection belongs to

    /// A person chose a finished round: following ends unless it is the newest.
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

}  // namespace draftscope
