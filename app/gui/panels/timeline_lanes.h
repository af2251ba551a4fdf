#pragma once

#include <imgui.h>

#include <optional>
#include <vector>

#include "app/gui/models/timeline.h"
#include "app/gui/panels/style.h"

/// Drawing of the Timeline panel's lanes.
namespace draftscope {

/// Screen area of the lanes.
struct LaneArea {
    ImVec2 min, max;  ///< of the lanes, without the names
    float names = 0;  ///< width of the column with the lanes' names
    float row = 0;    ///< height of one row
    ImDrawList* list = nullptr;
    float width() const { return max.x - min.x; }
};

/// Maps run time to pixels of the visible part of the folded axis.
struct TimeScale {
    const FoldedAxis& axis;
    const TimelineView& view;  ///< positions on the axis
    const LaneArea& area;
    TimeNs shift = 0;  ///< another profiler's times minus ours

    float position_to_x(TimeNs position) const;
    float to_x(TimeNs time) const { return position_to_x(axis.position(time - shift)); }
    TimeNs to_time(float x) const;
};

/// The interval under the mouse.
struct LaneHover {
    const Snapshot* snapshot = nullptr;
    const TimelineLane* lane = nullptr;
    const TimelineRow* row = nullptr;
    std::size_t index = 0;
    std::uint32_t merged = 1;
};

/// Draws one row. If the last item is hovered, returns the interval under the mouse. `blocks` is scratch.
std::optional<LaneHover> draw_lane_row(const TimeScale& scale, const Style& style, const Snapshot& snapshot,
                                       const TimelineLane& lane, const TimelineRow& row, float y,
                                       std::vector<TimelineBlock>& blocks);
/// Hatches the parts of steps without a span of `lane`: the remainder.
void draw_gaps(const TimeScale& scale, const Style& style, const TimelineLane& lane, const TimelineRow& steps,
               float y);
/// Draws the folds over all lanes, hatched, with their durations.
void draw_folds(const TimeScale& scale, const Style& style, float top, float bottom);
/// Returns a lane kind's name, shown at the left of its lanes.
const char* group_name(LaneKind kind);

}  // namespace draftscope
