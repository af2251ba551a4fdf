#pragma once

#include "kernels/cuda/common.cuh"

/// Radix selection of the k-th largest value by a block of pick_threads.
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

/// Finds the digit of the `left`-th largest key and how many keys with that digit are wanted. Input is the
/// number of keys per digit, `counts`. Begins and ends with a barrier; `digit` and `left` are valid until the
/// next call.
__device__ inline void find_digit(PickShared& shared, int left) {
    __syncthreads();
    if (threadIdx.x < warp_size) {
        // A lane handles eight adjacent digits, the first lane the largest ones.
        constexpr int each = digits / warp_size;
        const int lane = static_cast<int>(threadIdx.x), largest = digits - 1 - lane * each;
        int local_count = 0;
        for (int i = 0; i < each; ++i) local_count += shared.counts[largest - i];
        const int sum = warp_running(local_count);
        int above = sum - local_count;
        if (above < left && left <= sum) {
            int d = largest;
            while (above + shared.counts[d] < left) above += shared.counts[d--];
            shared.digit = static_cast<unsigned>(d);
            shared.left = left - above;
        }
    }
    __syncthreads();
}

/// Maps larger values to larger numbers; -0 counts as +0, NaN as the lowest.
__device__ __forceinline__ std::uint32_t ordered(float value) {
    return static_cast<std::uint32_t>(rank_key(value, 0) >> 32);
}

/// Lists the k largest columns of x in ascending order; of equal values, the first ones. Finds the k-th
/// largest value digit by digit, then the columns at or above it. k <= columns.
__device__ inline void list_top(const float* x, int columns, int k, std::int32_t* ids, PickShared& shared) {
    std::uint32_t prefix = 0;
    int left = k;  // number of values with the prefix that are wanted
    for (int shift = 24; shift >= 0; shift -= 8) {
        clear_counts(shared);
        for (int c = static_cast<int>(threadIdx.x); c < columns; c += pick_threads) {
            const std::uint32_t key = ordered(x[c]);
            // At the first digit, no part of the key is known.
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
        int equals = 0, selected = 0;
        const int equal_rank = equal_seen + block_before<pick_warps>(equal ? 1 : 0, shared.totals, equals);
        const bool keep = above || (equal && equal_rank < left);
        const int index = written + block_before<pick_warps>(keep ? 1 : 0, shared.totals, selected);
        if (keep) ids[index] = c;
        written += selected;
        equal_seen += equals;
    }
}

}  // namespace draftscope::kernels::cuda
