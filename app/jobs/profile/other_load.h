#pragma once

#include <optional>

#include "base/units.h"

namespace draftscope {

/// Measures how much CPU time other programs take, and the host of a virtual machine with them. They make
/// times longer than they are on a quiet machine.
class OtherLoad {
  public:
    OtherLoad() : start_(read()) {}
    /// Returns the mean number of CPUs that others used since the construction; 0 = unknown. Intervals below
    /// about 0.1 s are too short for the system's counters.
    double cpus() const;

  private:
    struct Counters {
        TimeNs time = 0;
        double others = 0;  ///< seconds of CPU time
    };
    static std::optional<Counters> read();

    std::optional<Counters> start_;
};

}  // namespace draftscope
