#pragma once

#include <cstdint>

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

}  // namespace draftscope
