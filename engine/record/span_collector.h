#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/phase.h"
#include "capture/record.h"

namespace draftscope {

/// Collects the phase events of one step from the recorder's ring and converts them to span rows.
class SpanCollector {
  public:
    /// `run_start` is the CLOCK_MONOTONIC time that is the run's zero.
    SpanCollector(PhaseRecorder& recorder, TimeNs run_start)
        : recorder_(recorder), run_start_(run_start), scale_(TickScale::calibrate()) {
        events_.reserve(max_expected_events);
    }

    /// Converts a tick count to run time, the clock of spans and steps.
    TimeNs to_run_time(std::uint64_t ticks) const { return scale_.to_monotonic_ns(ticks) - run_start_; }
    /// Collects the events recorded since the last call.
    void collect() { recorder_.drain(events_); }
    void clear();
    std::size_t size() const { return events_.size(); }
    /// T_head (router + head + topk + gather) of the events from `first` on: outermost phases on the critical
    /// lane.
    TimeNs head_ns(std::size_t first) const;
    /// Rows ordered by start, parents before children. Ids are left 0.
    std::vector<SpanRow> rows(RowId run_id, RowId step_id, RowId round_id) const;
    std::uint64_t take_dropped() { return recorder_.take_dropped(); }

  private:
    /// Events of a step with the deepest trees. A head's own thread records a varying number of them; without
    /// this reserve, a late step could be the first to allocate.
    static constexpr std::size_t max_expected_events = 1024;

    PhaseRecorder& recorder_;
    TimeNs run_start_;
    const TickScale& scale_;
    std::vector<SpanEvent> events_;
};

}  // namespace draftscope
