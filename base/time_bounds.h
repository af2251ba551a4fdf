#pragma once

#include <limits>

#include "base/units.h"

/// Sums and differences of times that come out of files, which may be anything: where there is no time for
/// the result, the nearest there is.
namespace draftscope {

inline TimeNs time_sum(TimeNs a, TimeNs b) {
    TimeNs sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
}

inline TimeNs time_between(TimeNs start, TimeNs end) {
    TimeNs length = 0;
    if (!__builtin_sub_overflow(end, start, &length)) return length;
    return end < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
}

}  // namespace draftscope
