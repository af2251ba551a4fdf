#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/timeline_axis.h"
#include "capture/capture.h"

/// What the Timeline panel draws: the part of a run's lanes (capture/timeline_lanes.h) that one view needs.
namespace draftscope {

/// The lanes of the run that is shown, as the newest snapshot has them.
class TimelineIndex {
  public:
    void update(const Snapshot& snapshot, RowId run_id);
    const std::vector<TimelineLane>& lanes() const { return run_->lanes; }
    TimeNs begin() const { return run_->begin; }
    TimeNs end() const { return run_->end; }
    bool empty() const { return run_->empty(); }

  private:
    std::shared_ptr<const RunLanes> run_ = std::make_shared<const RunLanes>();
};

/// One rectangle to draw. A single interval, or (count > 1) intervals too narrow to be drawn one by one that
/// start in the same pixel column.
struct TimelineBlock {
    TimeNs start = 0, end = 0;  ///< merged: first start, last end
    int column = 0;             ///< merged: the pixel column
    std::uint32_t count = 1;
    std::uint8_t phase = 0;   ///< merged: the phase with the most time
    std::uint32_t index = 0;  ///< in the row; the first one when merged
    float density = 1;        ///< merged: part of the column that is covered, at most 1
};

struct TimelineView {
    TimeNs begin = 0, end = 1;
    int columns = 1;
    double ns_per_column() const { return static_cast<double>(end - begin) / columns; }
};
/// At most two blocks per pixel column, whatever the number of intervals. Returns how many of these it looked
/// at one by one (the search per column not among them): under 128 for each merged block, and under 64 for
/// those behind another one. The sums of the row are the level of detail for every zoom, exact at each.
std::size_t visible_blocks(const TimelineRow& row, const TimelineView& view, std::vector<TimelineBlock>& out);

/// The interval at time `t`, within `slack_ns` of it (for narrow ones).
std::optional<std::size_t> interval_at(const TimelineRow& row, TimeNs t, TimeNs slack_ns);

/// Zooms by `factor` (< 1 = in) so that the time under `at` (0..1 of the width) stays where it is.
TimelineView zoom_view(const TimelineView& view, double factor, double at, TimeNs least_span_ns);
/// What a draft level is called: level 0 is the catch-up forward.
std::string level_name(int level);

/// Lines for the tooltip of an interval: its times as the axis counts them.
std::vector<std::string> describe_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                           const TimelineRow& row, std::size_t index,
                                           const FoldedAxis& axis = {}, const AxisOrigin& origin = {});
/// Round to select when the interval is clicked: index into Snapshot::rounds.
std::optional<std::size_t> round_of_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                             const TimelineRow& row, std::size_t index);
/// Step with this id: index into Snapshot::steps.
std::optional<std::size_t> find_step(const Snapshot& snapshot, RowId step_id);

}  // namespace draftscope
