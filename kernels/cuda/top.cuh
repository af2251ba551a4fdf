#pragma once

#include "kernels/cuda/common.cuh"

/// Selection of the largest keys (common.cuh) that threads hold.
namespace draftscope::kernels::cuda {

/// Keys per thread during a block's selection.
inline constexpr int held = 16;

/// Sorts a thread's keys, the largest first, with a bitonic network. All indices are constants, so that the
/// keys stay in registers.
template <int Held>
__device__ __forceinline__ void sort_keys(std::uint64_t (&keys)[Held]) {
    static_assert((Held & (Held - 1)) == 0 && Held <= 16);
#pragma unroll
    for (int size = 1; size <= 4; ++size)
#pragma unroll
        for (int distance = 3; distance >= 0; --distance)
#pragma unroll
            for (int i = 0; i < Held; ++i) {
                const int other = i ^ (1 << distance);
                if ((1 << size) > Held || distance >= size || other < i) continue;
                const bool descending = (i & (1 << size)) == 0;
                const std::uint64_t a = keys[i], b = keys[other];
                const bool swap = descending ? a < b : b < a;
                keys[i] = swap ? b : a;
                keys[other] = swap ? a : b;
            }
}

/// Writes the k largest keys held by the threads of a warp to `out`, descending. Keys differ, or are no_key.
template <int Held>
__device__ void warp_top(std::uint64_t (&keys)[Held], int k, std::uint64_t* out) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    if (k == 1) {
        std::uint64_t best = no_key;
#pragma unroll
        for (int i = 0; i < Held; ++i) best = keys[i] > best ? keys[i] : best;
        best = warp_max(best);
        if (lane == 0) out[0] = best;
        return;
    }
    if constexpr (Held == 1) {
        // Independent shuffles are faster than k dependent reductions.
        int rank = 0;
#pragma unroll
        for (int other = 0; other < warp_size; ++other) {
            const std::uint64_t key = __shfl_sync(all_lanes, keys[0], other);
            rank += key > keys[0] || (key == keys[0] && other < lane) ? 1 : 0;
        }
        if (rank < k) out[rank] = keys[0];
        for (int n = warp_size + lane; n < k; n += warp_size) out[n] = no_key;
        return;
    }
    sort_keys(keys);
    for (int n = 0; n < k; ++n) {
        const std::uint64_t top = warp_max(keys[0]);
        if (lane == 0) out[n] = top;
        const bool is_owner = keys[0] == top;
#pragma unroll
        for (int i = 0; i < Held; ++i)
            if (is_owner) keys[i] = i + 1 < Held ? keys[i + 1] : no_key;
    }
}

/// Lists that merge_lists() can merge.
inline constexpr int max_lists = 2 * warp_size;

/// Writes the k largest keys of `count` lists to `out`, descending. Each list has k keys, descending, and
/// missing keys last. One warp takes part, and a lane follows up to two lists.
__device__ inline void merge_lists(const std::uint64_t* lists, int count, int k, std::uint64_t* out) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const std::uint64_t* next[2];
    const std::uint64_t* end[2];
    std::uint64_t first[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int list = i * warp_size + lane;
        next[i] = lists + min(list, count - 1) * k;
        end[i] = next[i] + k;
        first[i] = list < count ? *next[i] : no_key;
    }
    for (int n = 0; n < k; ++n) {
        const std::uint64_t top = warp_max(first[0] > first[1] ? first[0] : first[1]);
        if (lane == 0) out[n] = top;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (top != no_key && first[i] == top) first[i] = ++next[i] == end[i] ? no_key : *next[i];
    }
}

/// Keys up to which counting the larger ones is faster than k rounds of merge_lists().
inline constexpr int max_ranked = 128;

/// Writes the k largest keys of `count` lists in shared memory as merge_lists() does. All threads of the
/// block take part, and any of them may write. `out` is not in the memory of the lists.
__device__ inline void merge_by_block(const std::uint64_t* lists, int count, int k, std::uint64_t* out) {
    const int keys = count * k;
    if (keys > max_ranked) {
        if (threadIdx.x < warp_size) merge_lists(lists, count, k, out);
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < keys; i += static_cast<int>(blockDim.x)) {
        const std::uint64_t key = lists[i];
        int rank = 0;
        for (int other = 0; other < keys; ++other)
            rank += lists[other] > key || (lists[other] == key && other < i) ? 1 : 0;
        if (rank < k) out[rank] = key;
    }
}

/// Writes the k largest keys held by a block of Warps warps to `out`. `shared` holds Warps * max_topk keys.
template <int Warps, int Held>
__device__ void block_top(std::uint64_t (&keys)[Held], int k, std::uint64_t* shared, std::uint64_t* out) {
    static_assert(Warps <= max_lists);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    warp_top(keys, k, shared + warp * k);
    __syncthreads();
    merge_by_block(shared, Warps, k, out);
}

}  // namespace draftscope::kernels::cuda
