#pragma once

#include <cstdint>

#include "base/units.h"

namespace draftscope {

/// Times work on a device queue (CUDA events in kernels/cuda). The profiler reads GPU phase times through
/// this interface and so never includes the CUDA runtime.
class DeviceTimer {
  public:
    virtual ~DeviceTimer() = default;
    /// Marks the current point of the queue; cheap, never blocks. Returns a mark for `elapsed_ns`.
    virtual std::uint32_t mark() = 0;
    /// Device time between two marks. Call after the round's own synchronisation point. Negative: not
    /// measured.
    virtual TimeNs elapsed_ns(std::uint32_t from, std::uint32_t to) = 0;
    /// Forgets all marks (once per round).
    virtual void reset() = 0;
};

}  // namespace draftscope
