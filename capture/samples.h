#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "capture/queries.h"

namespace draftscope {

/// Time and bytes of a phase in one counted step, as in v_step_phase.
struct PhaseSample {
    std::uint32_t step = 0;  ///< index into Snapshot::steps
    TimeNs busy_ns = 0, exposed_ns = 0;
    std::int64_t bytes = 0;
};

/// The samples of v_phase for one run. A call of update() reads only the rows added since the last call, so
/// its cost is proportional to the growth of the run. A late GPU span makes it read the span's step and the
/// later steps again.
class RunSamples {
  public:
    /// Reads the new rows. Starts again if the run or the capture changes.
    void update(const Snapshot& snapshot, RowId run_id);

    /// Counted steps in order, and their times (end - start - paused).
    const std::vector<std::uint32_t>& steps() const { return steps_; }
    const std::vector<TimeNs>& step_ns() const { return step_ns_; }
    /// Time of the counted steps whose spans were recorded.
    TimeNs sampled_ns() const { return sampled_ns_; }
    /// Returns one sample per counted step in which the phase occurred; for the remainder, one per sampled
    /// step.
    const std::vector<PhaseSample>& phase_samples(int phase_id) const { return phases_[phase_id]; }
    /// Number of counted steps whose spans were read since this run was selected, including repeated reads.
    std::size_t steps_read() const { return steps_read_; }
    /// Removes the first `count` steps.
    void drop_first(std::size_t count);
    /// Returns the same as phase_stats(snapshot, run_id).
    std::vector<PhaseStats> stats() const;

  private:
    void drop_from(std::uint32_t step);

    LogTable<StepEntry> seen_;  ///< keeps the rows alive; their address identifies the capture
    std::size_t seen_late_ = 0;
    RowId run_id_ = 0;
    std::vector<std::uint32_t> steps_;
    std::vector<TimeNs> step_ns_;
    TimeNs sampled_ns_ = 0;
    std::size_t steps_read_ = 0;
    std::array<std::vector<PhaseSample>, max_phases> phases_;
};

}  // namespace draftscope
