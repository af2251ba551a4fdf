#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/fp_mode.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Below this many elementary operations (about 5 us) waking the pool costs more than it saves.
inline constexpr std::int64_t worth_splitting = 1 << 17;

/// Where the share of part `part` of [0, n) begins.
inline int share_begin(int n, int part, int parts) {
    return static_cast<int>(static_cast<std::int64_t>(n) * part / parts);
}

/// Runs `run(thread)` on each of `threads` threads; in the caller where that is one.
template <typename Run>
void run_threads(Exec& exec, int threads, Run run) {
    if (threads > 1) return exec.parallel(threads, run);
    const FlushDenormals mode;
    run(0);
}

/// Cuts [0, n) into one contiguous range a thread and runs `body(thread, begin, end)`; in the caller alone
/// when the whole is cheap. Where the cuts fall must not change what `body` computes.
template <typename Body>
void split_range(Exec& exec, int n, std::int64_t operations, Body body) {
    if (n <= 0) return;
    const int parts = operations < worth_splitting ? 1 : std::min(n, exec.threads());
    run_threads(exec, parts,
                [&](int part) { body(part, share_begin(n, part, parts), share_begin(n, part + 1, parts)); });
}

}  // namespace draftscope::kernels
