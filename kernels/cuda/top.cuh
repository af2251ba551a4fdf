#pragma once

#include "kernels/cuda/common.cuh"

/// Selection of the largest keys (common.cuh) that threads hold.
namespace draftscope::kernels::cuda {

/// Keys per thread during a block's selection.
inline constexpr int held = 16;

/// Writes the k largest keys held by the threads of a warp to `out`, descending. Keys differ, or are no_key.
template <int Held>
__device__ void warp_top(std::uint64_t (&keys)[Held], int k, std::uint64_t* out) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    std::uint64_t best = no_key;
#pragma unroll
    for (int i = 0; i < Held; ++i) best = keys[i] > best ? keys[i] : best;
    for (int n = 0; n < k; ++n) {
        const std::uint64_t top = warp_max(best);
        if (lane == 0) out[n] = top;
        if (top == no_key || best != top) continue;  // every lane takes part in the next shuffle
        best = no_key;
#pragma unroll
        for (int i = 0; i < Held; ++i) {
            if (keys[i] == top) keys[i] = no_key;
            best = keys[i] > best ? keys[i] : best;
        }
    }
}

/// Writes the k largest keys held by a block of Warps warps to `out`, from the first warp. `shared` holds
/// Warps * max_topk keys.
template <int Warps>
__device__ void block_top(std::uint64_t (&keys)[held], int k, std::uint64_t* shared, std::uint64_t* out) {
    static_assert(Warps * max_topk <= held * warp_size);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    warp_top(keys, k, shared + warp * max_topk);
    __syncthreads();
    if (warp != 0) return;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * warp_size + lane;
        const bool valid = at < Warps * max_topk && at % max_topk < k;
        keys[i] = valid ? shared[at] : no_key;
    }
    warp_top(keys, k, out);
}

}  // namespace draftscope::kernels::cuda
