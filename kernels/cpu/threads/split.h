#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/threads/fp_mode.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Elementary operations (about 5 us) below which waking the pool costs more than it saves.
inline constexpr std::int64_t min_parallel_ops = 1 << 17;

/// Start of part `part` of [0, n).
inline int share_begin(int n, int part, int parts) {
    return static_cast<int>(static_cast<std::int64_t>(n) * part / parts);
}

/// Runs `run(thread)` on each of `threads` threads, or in the caller if there is one.
template <typename Run>
void run_threads(ThreadPool& pool, int threads, Run run) {
    if (threads > 1) return pool.parallel(threads, run);
    const FlushDenormals mode;
    run(0);
}

/// Splits [0, n) into one contiguous range per thread and runs `body(thread, begin, end)`. Cheap work runs in
/// the caller alone. The boundaries must not affect what `body` computes.
template <typename Body>
void split_range(ThreadPool& pool, int n, std::int64_t operations, Body body) {
    if (n <= 0) return;
    const int parts = operations < min_parallel_ops ? 1 : std::min(n, pool.threads());
    run_threads(pool, parts,
                [&](int part) { body(part, share_begin(n, part, parts), share_begin(n, part + 1, parts)); });
}

}  // namespace draftscope::kernels
