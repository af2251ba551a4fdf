#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/capture.h"

/// Model of the Timeline panel: the visible part of a run's lanes (capture/timeline_lanes.h).
namespace draftscope {

/// A pause of the engine and its place on the axis.
struct Fold {
    TimeNs start = 0, end = 0;       ///< run time
    TimeNs position = 0, width = 0;  ///< on the axis, in ns
    TimeNs length() const { return end - start; }
};

/// Part of the axis without folds.
struct AxisPart {
    TimeNs start = 0, end = 0;  ///< run time
    TimeNs position = 0;        ///< of `start`; the length is that of the run time
};

/// Maps run time to axis positions in ns. A pause is folded to a small fraction of its step's width, so that
/// the engine's work stays readable.
class FoldedAxis {
  public:
    /// Reads the pauses of a run, including the round in flight.
    void update(const Snapshot& snapshot, RowId run_id);

    TimeNs position(TimeNs time) const;
    TimeNs time(TimeNs position) const;
    /// Returns the time from `from` to `to` without pauses; negative if `to` < `from`.
    TimeNs busy(TimeNs from, TimeNs to) const;
    /// Returns the paused time between `from` and `to`.
    TimeNs paused(TimeNs from, TimeNs to) const { return (to - from) - busy(from, to); }
    /// Returns the parts between two positions, split at the folds.
    std::vector<AxisPart> parts(TimeNs begin, TimeNs end) const;
    std::span<const Fold> folds() const { return folds_; }
    /// Returns the fold at a time; null = none.
    const Fold* fold_at(TimeNs time) const;

  private:
    const Fold* first_ending_after(TimeNs time) const;

    std::vector<Fold> folds_;  ///< sorted by time
};

/// Zero of the axis' times.
struct AxisOrigin {
    TimeNs time = 0;
    std::string text = "from the start";  ///< or "from step 13"
    std::string long_text;
};
/// Chooses the origin for the view from `begin` to `end` (run time). It is the start of `selected` (null =
/// none) if that step is visible and not too short for the view. Otherwise it is the first step that starts
/// in the view, or the start of the run.
AxisOrigin axis_origin(const Snapshot& snapshot, RowId run_id, const FoldedAxis& axis,
                       const StepRow* selected, TimeNs begin, TimeNs end);

/// Returns a round distance between time marks, so that about `marks` fit.
TimeNs tick_step(TimeNs span, int marks);
/// Formats an offset with the precision of `step`: "+12.340 ms". `largest`: the largest offset on the axis;
/// it determines the unit.
std::string offset_text(TimeNs offset, TimeNs step, TimeNs largest);
/// Formats a number with about three digits: "1.23", "12.3", "123".
std::string three_digits(double value);
/// Formats a duration with three significant digits: "12.5 ms", "800 us".
std::string duration_text(TimeNs ns);

/// Returns a sentence on what a run's lanes lack; "" = nothing.
const char* missing_in_lanes(const Snapshot& snapshot, RowId run_id);

/// Returns a run's lanes; those of a run without spans are empty.
std::shared_ptr<const RunLanes> run_lanes(const Snapshot& snapshot, RowId run_id);

/// One rectangle to draw: a single interval, or (count > 1) merged intervals. Merged intervals are narrower
/// than a pixel and start in the same pixel column.
struct TimelineBlock {
    TimeNs start = 0, end = 0;  ///< merged: first start, last end
    int column = 0;             ///< merged: the pixel column
    std::uint32_t count = 1;
    std::uint8_t phase = 0;   ///< merged: the phase with the most time
    std::uint32_t index = 0;  ///< index in the row; merged: of the first interval
    float density = 1;        ///< merged: covered fraction of the column, 0..1
};

/// Visible time range and its width in pixel columns.
struct TimelineView {
    TimeNs begin = 0, end = 1;
    int columns = 1;
    double ns_per_column() const { return static_cast<double>(end - begin) / columns; }
};
/// Appends the visible blocks, at most two per pixel column. Merged blocks use the row's sums, which are
/// exact at every zoom. Returns the number of intervals examined one by one, without the search per column:
/// under 128 per merged block, or under 64 if it follows another merged block.
std::size_t visible_blocks(const TimelineRow& row, const TimelineView& view, std::vector<TimelineBlock>& out);

/// Returns the interval at time `t`, or within `slack_ns` of `t` for narrow intervals.
std::optional<std::size_t> interval_at(const TimelineRow& row, TimeNs t, TimeNs slack_ns);

/// Zooms by `factor` (< 1 = in) around the time at `at` (0..1 of the width).
TimelineView zoom_view(const TimelineView& view, double factor, double at, TimeNs min_span_ns);
/// What the user left of the timeline's width.
enum class ViewWidth : std::uint8_t {
    steps,   ///< a few steps, until the user changes the view
    chosen,  ///< as wide as the user chose
    part,    ///< zoomed into a part of the selected step
};
/// Returns the view after another step was selected. It shows the whole step, which `chosen` may widen.
/// `part` shows the same part of it as of the step before, if that was in view. `end`: of the run.
TimelineView follow_step(const TimelineView& view, ViewWidth width, std::pair<TimeNs, TimeNs> before,
                         std::pair<TimeNs, TimeNs> step, TimeNs end);
/// Returns a draft level's name; level 0 is the catch-up forward.
std::string level_name(int level);

/// Returns the lines of an interval's tooltip. Times are relative to `origin`, without pauses.
std::vector<std::string> describe_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                           const TimelineRow& row, std::size_t index,
                                           const FoldedAxis& axis = {}, const AxisOrigin& origin = {});
/// Returns the round to select when the interval is clicked, as an index into Snapshot::rounds.
std::optional<std::size_t> round_of_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                             const TimelineRow& row, std::size_t index);

}  // namespace draftscope
