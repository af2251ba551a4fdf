#pragma once

#include "kernels/cuda/common.cuh"

/// Finding the k-th largest of many by their digits, by a block of pick_threads.
namespace draftscope::kernels::cuda {

inline constexpr int pick_threads = 1024;
inline constexpr int pick_warps = pick_threads / warp_size;
inline constexpr int digits = 256;

struct PickShared {
    int counts[digits];
    int totals[pick_warps];
    unsigned digit;
    int left;
};

__device__ __forceinline__ void clear_counts(PickShared& shared) {
    for (int d = static_cast<int>(threadIdx.x); d < digits; d += pick_threads) shared.counts[d] = 0;
    __syncthreads();
}

/// Of as many keys per digit as `counts` says, the digit of the `left`-th largest and how many of its keys
/// are wanted. Begins and ends with a barrier; `digit` and `left` stay until the next call.
__device__ inline void find_digit(PickShared& shared, int left) {
    __syncthreads();
    if (threadIdx.x < warp_size) {
        // A lane answers for eight neighbouring digits, the first lane for the largest.
        constexpr int each = digits / warp_size;
        const int lane = static_cast<int>(threadIdx.x), largest = digits - 1 - lane * each;
        int mine = 0;
        for (int i = 0; i < each; ++i) mine += shared.counts[largest - i];
        const int sum = warp_running(mine);
        int above = sum - mine;
        if (above < left && left <= sum) {
            int d = largest;
            while (above + shared.counts[d] < left) above += shared.counts[d--];
            shared.digit = static_cast<unsigned>(d);
            shared.left = left - above;
        }
    }
    __syncthreads();
}

/// Larger values have larger numbers; -0 counts as +0, NaN as the lowest.
__device__ __forceinline__ std::uint32_t ordered(float value) {
    return static_cast<std::uint32_t>(rank_key(value, 0) >> 32);
}

/// Digit by digit the k-th largest of x is narrowed down; then the columns above it are listed in their
/// order, and of those equal to it the first ones. k <= columns.
__device__ inline void list_top(const float* x, int columns, int k, std::int32_t* ids, PickShared& shared) {
    std::uint32_t prefix = 0;
    int left = k;  // how many of the values that share the prefix are wanted
    for (int shift = 24; shift >= 0; shift -= 8) {
        clear_counts(shared);
        for (int c = static_cast<int>(threadIdx.x); c < columns; c += pick_threads) {
            const std::uint32_t key = ordered(x[c]);
            // At the first digit nothing is known of the key yet.
            if (shift == 24 || key >> (shift + 8) == prefix)
                atomicAdd(&shared.counts[key >> shift & 0xffu], 1);
        }
        find_digit(shared, left);
        prefix = prefix << 8 | shared.digit;
        left = shared.left;
        __syncthreads();  // before the counts are cleared
    }
    int written = 0, equal_seen = 0;
    for (int first = 0; first < columns; first += pick_threads) {
        const int c = first + static_cast<int>(threadIdx.x);
        const std::uint32_t key = c < columns ? ordered(x[c]) : 0;
        const bool above = c < columns && key > prefix;
        const bool equal = c < columns && key == prefix;
        int equals = 0, kept = 0;
        const int equal_place = equal_seen + block_before<pick_warps>(equal ? 1 : 0, shared.totals, equals);
        const bool keep = above || (equal && equal_place < left);
        const int place = written + block_before<pick_warps>(keep ? 1 : 0, shared.totals, kept);
        if (keep) ids[place] = c;
        written += kept;
        equal_seen += equals;
    }
}

}  // namespace draftscope::kernels::cuda
