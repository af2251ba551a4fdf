#pragma once

#include <cstdint>

#include "base/units.h"

namespace draftscope {

/// Measures work on a device queue (CUDA events in kernels/cuda). The profiler reads GPU phase times through
/// this interface, so it does not include the CUDA runtime.
class DeviceTimer {
  public:
    virtual ~DeviceTimer() = default;
    /// Marks the current point of the queue and returns the mark's number for elapsed_ns(). Never blocks.
    virtual std::uint32_t mark() = 0;
    /// Returns the device time between two marks; negative if not measured. Call after the round has
    /// synchronised.
    virtual TimeNs elapsed_ns(std::uint32_t from, std::uint32_t to) = 0;
    /// Discards all marks. Called once per round.
    virtual void reset() = 0;
};

}  // namespace draftscope
