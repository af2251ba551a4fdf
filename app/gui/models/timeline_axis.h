#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/capture.h"

/// The Timeline's axis: run time with the pauses folded, and how times on it are written.
namespace draftscope {

/// A stretch in which the engine was held, and where it lies on the axis.
struct Fold {
    TimeNs start = 0, end = 0;       ///< run time
    TimeNs position = 0, width = 0;  ///< on the axis
    TimeNs length() const { return end - start; }
};

/// Part of the axis without a fold inside.
struct AxisPart {
    TimeNs start = 0, end = 0;  ///< run time
    TimeNs position = 0;        ///< of the start; the end lies as far from it as in run time
};

/// Maps run time to positions in ns, in which a pause is only as wide as a small part of the step that it
/// lies in: what the engine did stays readable however long somebody looked at it.
class FoldedAxis {
  public:
    /// The pauses of a run, the round under way included.
    void update(const Snapshot& snapshot, RowId run_id);

    TimeNs position(TimeNs time) const;
    TimeNs time(TimeNs position) const;
    /// From `from` to `to`, negative when backwards, pauses left out.
    TimeNs busy(TimeNs from, TimeNs to) const;
    /// Time held between the two.
    TimeNs paused(TimeNs from, TimeNs to) const { return (to - from) - busy(from, to); }
    /// What lies between two positions, cut at the folds.
    std::vector<AxisPart> parts(TimeNs begin, TimeNs end) const;
    std::span<const Fold> folds() const { return folds_; }
    /// The fold at a time; null = none.
    const Fold* fold_at(TimeNs time) const;

  private:
    const Fold* first_ending_after(TimeNs time) const;

    std::vector<Fold> folds_;  ///< by time
};

/// Where the axis counts from.
struct AxisOrigin {
    TimeNs time = 0;
    std::string text = "from the start";  ///< or "from step 13"
    std::string long_text;
};
/// The step `selected` (null = none) when it is a visible part of what `axis` shows from `begin` to `end`
/// (run time); else the first step that starts there, of few; else the start of the run.
AxisOrigin axis_origin(const Snapshot& snapshot, RowId run_id, const FoldedAxis& axis,
                       const StepRow* selected, TimeNs begin, TimeNs end);

/// Round distance between time marks so that about `marks` fit.
TimeNs tick_step(TimeNs span, int marks);
/// An offset told apart from those `step` away: "+12.340 ms". `largest`: the greatest offset beside it, which
/// sets the unit.
std::string offset_text(TimeNs offset, TimeNs step, TimeNs largest);
/// "12.5 ms", "800 us": three significant digits.
std::string duration_text(TimeNs ns);

}  // namespace draftscope
