#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

/// Helpers shared by the ops of TwinDevice.
namespace draftscope::testing {

inline constexpr float lowest = -std::numeric_limits<float>::infinity();

[[noreturn]] inline void reject(const char* what, const char* why) {
    std::fprintf(stderr, "twin device: %s: %s\n", what, why);
    std::abort();
}

inline std::size_t size(std::int64_t count) {
    return static_cast<std::size_t>(count);
}

/// Returns whether `a` at index `at` sorts before `b` at index `bt`: larger values first, ties to the lower
/// index. NaN counts as -inf.
inline bool better(float a, std::int64_t at, float b, std::int64_t bt) {
    if (a != a) a = lowest;
    if (b != b) b = lowest;
    return a != b ? a > b : at < bt;
}

}  // namespace draftscope::testing
