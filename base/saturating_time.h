#pragma once

#include <limits>

#include "base/units.h"

/// Saturating add and subtract for timestamps from untrusted files.
namespace draftscope {

inline TimeNs saturating_sum(TimeNs a, TimeNs b) {
    TimeNs sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
}

inline TimeNs saturating_difference(TimeNs start, TimeNs end) {
    TimeNs length = 0;
    if (!__builtin_sub_overflow(end, start, &length)) return length;
    return end < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
}

}  // namespace draftscope
