#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "capture/record.h"
#include "profiler/phase.h"

namespace draftscope {

/// The phase events of one step on their way from the recorder's ring to span rows.
class SpanLog {
  public:
    /// `run_start`: CLOCK_MONOTONIC zero of the run's times.
    SpanLog(PhaseRecorder& recorder, TimeNs run_start)
        : recorder_(recorder), run_start_(run_start), scale_(TickScale::calibrate()) {
        events_.reserve(most_expected);
    }

    /// Run time of a tick count: the clock of spans, and of the steps around them.
    TimeNs at(std::uint64_t ticks) const { return scale_.to_monotonic_ns(ticks) - run_start_; }
    /// Takes over what was recorded since the last call.
    void collect() { recorder_.drain(events_); }
    void clear();
    std::size_t size() const { return events_.size(); }
    /// T_head (router + head + topk + gather) of the events [first, last): outermost on the critical lane.
    TimeNs head_ns(std::size_t first, std::size_t last) const;
    /// Rows ordered by start, parents before children; ids are left 0.
    std::vector<SpanRow> rows(RowId run_id, RowId step_id, RowId round_id) const;
    std::uint64_t take_dropped() { return recorder_.take_dropped(); }

  private:
    /// Of the deepest trees' steps. What a head's own thread records there is chance: without room for it a
    /// late step would be the first to need it.
    static constexpr std::size_t most_expected = 1024;

    PhaseRecorder& recorder_;
    TimeNs run_start_;
    const TickScale& scale_;
    std::vector<SpanEvent> events_;
};

}  // namespace draftscope
