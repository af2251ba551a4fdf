#pragma once

#include <cstdint>
#include <limits>

namespace draftscope {

using TokenId = std::int32_t;  ///< an id of the target's vocabulary, 0 <= id < V
using TimeNs = std::int64_t;   ///< nanoseconds; each field's declaration states its origin
using RowId = std::int64_t;    ///< primary key of a capture row, starts at 1; 0 = none

inline constexpr TokenId no_token = -1;
inline constexpr std::int64_t ns_per_ms = 1'000'000;
inline constexpr std::int64_t ns_per_s = 1'000'000'000;

inline double seconds(TimeNs ns) {
    return static_cast<double>(ns) * 1e-9;
}
inline double milliseconds(TimeNs ns) {
    return static_cast<double>(ns) * 1e-6;
}

/// Sum and difference of timestamps from untrusted files, which keep to the limits of TimeNs.
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
