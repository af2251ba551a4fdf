#pragma once

#include <cstdint>

#include "base/units.h"

namespace draftscope {

/// CLOCK_MONOTONIC. The one clock of a run: CUPTI's timestamps are put on it too.
TimeNs monotonic_ns();
/// CLOCK_REALTIME, only for wall-clock anchors.
TimeNs utc_ns();
/// "2026-11-21T09:30:00Z"
struct UtcText {
    char text[24];
};
UtcText utc_text(TimeNs utc);

/// Cheap tick counter for span ends: the invariant TSC where the CPU has one, else monotonic_ns.
std::uint64_t ticks_now();

/// Maps ticks to CLOCK_MONOTONIC nanoseconds. `calibrate()` takes about 10 ms once per process; later calls
/// are free.
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
