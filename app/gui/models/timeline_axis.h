#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/capture.h"

/// The Timeline's axis: run time with folded pauses, and the formats of its times.
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
/// Formats a duration with three significant digits: "12.5 ms", "800 us".
std::string duration_text(TimeNs ns);

}  // namespace draftscope
