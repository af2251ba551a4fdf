#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "capture/queries.h"

namespace draftscope {

/// A phase in one counted step, as v_step_phase has it.
struct PhaseSample {
    std::uint32_t step = 0;  ///< into Snapshot::steps
    TimeNs busy_ns = 0, exposed_ns = 0;
    std::int64_t bytes = 0;
};

/// The samples behind v_phase, of one run. `update` looks only at what came since the last call, so a growing
/// run costs what it grew by; a late span (GPU) makes its step and those after it be read again.
class RunSamples {
  public:
    /// Another run or another capture starts anew.
    void update(const Snapshot& snapshot, RowId run_id);

    /// Counted steps in order, and their times (end - start - paused).
    const std::vector<std::uint32_t>& steps() const { return steps_; }
    const std::vector<TimeNs>& step_ns() const { return step_ns_; }
    TimeNs total_ns() const { return total_ns_; }
    /// One sample per counted step in which the phase occurred; the remainder has one for each.
    const std::vector<PhaseSample>& of(int phase_id) const {
        return phases_[static_cast<std::size_t>(phase_id)];
    }
    /// Counted steps whose spans were looked at since this run was begun, those read again included.
    std::size_t steps_read() const { return steps_read_; }
    /// Forgets the first `count` steps.
    void drop_first(std::size_t count);
    /// As phase_stats(snapshot, run_id).
    std::vector<PhaseStats> stats() const;

  private:
    void drop_from(std::uint32_t step);

    LogTable<StepEntry>::View seen_;  ///< keeps the rows alive, whose place says which capture it was
    std::size_t seen_late_ = 0;
    RowId run_id_ = 0;
    std::vector<std::uint32_t> steps_;
    std::vector<TimeNs> step_ns_;
    TimeNs total_ns_ = 0;
    std::size_t steps_read_ = 0;
    std::array<std::vector<PhaseSample>, max_phases> phases_;
};

}  // namespace draftscope
