#pragma once

#include <imgui.h>

#include <optional>
#include <vector>

#include "app/gui/models/timeline.h"
#include "app/gui/panels/style.h"

/// How the Timeline panel draws the rows of its lanes.
namespace draftscope {

struct LaneArea {
    ImVec2 min, max;  ///< of the lanes, names excluded
    float names = 0;  ///< width of the column with the lanes' names
    float row = 0;    ///< height of one row
    ImDrawList* list = nullptr;
    float width() const { return max.x - min.x; }
};

/// From run time to pixels: what is in view of the folded axis.
struct TimeScale {
    const FoldedAxis& axis;
    const TimelineView& view;  ///< positions on the axis
    const LaneArea& area;
    TimeNs shift = 0;  ///< of another profiler's times against ours

    float x_at(TimeNs position) const;
    float x_of(TimeNs time) const { return x_at(axis.position(time - shift)); }
    TimeNs time_at(float x) const;
};

struct LaneHover {
    const Snapshot* snapshot = nullptr;
    const TimelineLane* lane = nullptr;
    const TimelineRow* row = nullptr;
    std::size_t index = 0;
    std::uint32_t merged = 1;
};

/// Draws one row; what is under the mouse when the last item is hovered. `blocks` is scratch.
std::optional<LaneHover> draw_lane_row(const TimeScale& scale, const Style& style, const Snapshot& snapshot,
                                       const TimelineLane& lane, const TimelineRow& row, float y,
                                       std::vector<TimelineBlock>& blocks);
/// Hatches the parts of steps that no span of `lane` claims: the remainder.
void draw_gaps(const TimeScale& scale, const Style& style, const TimelineLane& lane, const TimelineRow& steps,
               float y);
/// The folds over all lanes, hatched, with their durations.
void draw_folds(const TimeScale& scale, const Style& style, float top, float bottom);
const char* group_name(LaneKind kind);

}  // namespace draftscope
