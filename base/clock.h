#pragma once

#include <cstdint>

#include "base/units.h"

namespace draftscope {

/// Returns CLOCK_MONOTONIC, the only clock of a run. CUPTI's timestamps are converted to it.
TimeNs monotonic_ns();
/// Returns CLOCK_REALTIME; only for wall-clock anchors.
TimeNs utc_ns();
/// A time as "2026-11-21T09:30:00Z".
struct UtcText {
    char text[24];
};
UtcText utc_text(TimeNs utc);

/// Cheap tick counter for the ends of spans: the invariant TSC if the CPU has one, else monotonic_ns().
std::uint64_t ticks_now();

/// Converts ticks to CLOCK_MONOTONIC nanoseconds. The first calibrate() of a process takes about 10 ms; later
/// calls are free.
class TickScale {
  public:
    static const TickScale& calibrate();
    TimeNs to_monotonic_ns(std::uint64_t ticks) const;
    bool uses_tsc() const { return uses_tsc_; }
    double ns_per_tick() const { return ns_per_tick_; }

  private:
    std::uint64_t base_ticks_ = 0;
    TimeNs base_ns_ = 0;
    double ns_per_tick_ = 1.0;
    bool uses_tsc_ = false;
};

}  // namespace draftscope
