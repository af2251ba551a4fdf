#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/units.h"

/// State shared by all panels: the selection and common switches. Plain data without ImGui, for models and
/// tests.
namespace draftscope {

struct TimeRange {
    TimeNs start_ns = 0;  ///< since the start of the selected run
    TimeNs end_ns = 0;
    bool operator==(const TimeRange&) const = default;
};

struct UiState {
    RowId run_id = 0;                  ///< selected run; 0 = none
    std::optional<std::size_t> round;  ///< selected round, index into Snapshot::rounds; absent if `in_flight`
    bool in_flight = false;            ///< the round in flight is selected (Snapshot::in_flight)
    bool follow = true;                ///< keep the newest round selected
    std::optional<TimeRange> range;    ///< selected in the timeline; limits the panels' tables
    TokenId hovered_token = no_token;  ///< under the mouse in any panel, marked in all; reset each frame
    RowId stopped_prompt = 0;    ///< the held engine's sequence of a batch, which following selects; 0 = any
    bool fit_requested = false;  ///< key F, for one frame: views show everything
    bool fit_run_requested = false;     ///< Shift+F, for one frame: the timeline shows the whole run
    bool find_requested = false;        ///< Ctrl+F, for one frame: the Text panel takes the focus
    bool open_other_requested = false;  ///< open the dialog for another capture
    std::string focus_panel;            ///< id of a panel to open and bring to the front; reset each frame
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

}  // namespace draftscope
