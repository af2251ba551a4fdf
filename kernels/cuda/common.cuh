#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/simt.h"
#include "kernels/device_ops.h"
#if !defined(DS_SIMT_HOST)
#include <cuda_fp16.h>
#endif

/// What several kernels share. A warp has 32 lanes and every lane of it takes part in each shuffle.
namespace draftscope::kernels::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

__device__ __forceinline__ float from_bf16(Bf16 value) {
    return __uint_as_float(static_cast<std::uint32_t>(value) << 16);
}

/// Nearest, ties to even; a NaN stays one. The host's to_bf16(), bit for bit.
__device__ __forceinline__ Bf16 to_bf16(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>(bits >> 16 | 0x40u);
    return static_cast<Bf16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <Halves H>
__device__ __forceinline__ float from_half(Bf16 value) {
    if constexpr (H == Halves::bf16) return from_bf16(value);
#if defined(DS_SIMT_HOST)
    return float_of_f16(value);
#else
    return __half2float(__ushort_as_half(value));
#endif
}
/// The host's f16_of() or to_bf16(), bit for bit but for which NaN it is.
template <Halves H>
__device__ __forceinline__ Bf16 to_half(float value) {
    if constexpr (H == Halves::bf16) return to_bf16(value);
#if defined(DS_SIMT_HOST)
    return f16_of(value);
#else
    return __half_as_ushort(__float2half_rn(value));
#endif
}
/// Calls `run` with the kind as a type, for kernels of either.
template <typename Run>
void with_halves(Halves halves, Run run) {
    if (halves == Halves::f16)
        run(std::integral_constant<Halves, Halves::f16>());
    else
        run(std::integral_constant<Halves, Halves::bf16>());
}

/// (value, place) as one number: greater means larger value, then lower place. NaN is the lowest value.
__device__ __forceinline__ std::uint64_t rank_key(float value, std::uint32_t place) {
    const std::uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
    std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    if (value != value) ordered = 0;
    return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - place);
}
__device__ __forceinline__ std::uint32_t place_of(std::uint64_t key) {
    return 0xffffffffu - static_cast<std::uint32_t>(key);
}
/// The value that a key was made of; -0 comes back as +0.
__device__ __forceinline__ float value_of(std::uint64_t key) {
    const auto ordered = static_cast<std::uint32_t>(key >> 32);
    if (ordered == 0) return __uint_as_float(0x7fc00000u);
    return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

/// No key of a value: below all of them.
inline constexpr std::uint64_t no_key = 0;

__device__ __forceinline__ std::uint64_t warp_max(std::uint64_t key) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const std::uint64_t other = __shfl_xor_sync(all_lanes, key, offset);
        key = other > key ? other : key;
    }
    return key;
}
__device__ __forceinline__ float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, offset));
    return value;
}
/// Each lane gets the sum, added in the same order.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(all_lanes, value, offset);
    return value;
}

/// The sum of `value` over the lanes up to and with each.
template <typename T>
__device__ __forceinline__ T warp_running(T value) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    for (int offset = 1; offset < warp_size; offset *= 2) {
        const T other = __shfl_up_sync(all_lanes, value, offset);
        if (lane >= offset) value += other;
    }
    return value;
}

/// The largest of values [count] that is no NaN, -inf without one, for every thread of a block of Warps
/// warps; all take part. `maxima` [Warps] is shared and not used at the time.
template <int Warps>
__device__ float block_largest(const float* values, int count, float* maxima) {
    float most = -INFINITY;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += Warps * warp_size) {
        const float value = values[i];
        most = fmaxf(most, value == value ? value : -INFINITY);
    }
    most = warp_max(most);
    if (threadIdx.x % warp_size == 0) maxima[threadIdx.x / warp_size] = most;
    __syncthreads();
    for (int w = 0; w < Warps; ++w) most = fmaxf(most, maxima[w]);
    return most;
}

/// Of a token with that logit; 0 below the cut, and of a NaN.
__device__ __forceinline__ float kept_probability(float logit, float scale, float log_norm, float lowest) {
    return logit >= lowest ? fminf(expf(logit * scale - log_norm), 1.0f) : 0.0f;
}

/// Sum of `value` over the threads of a block of Warps warps before this one, and over all of them. `totals`
/// [Warps] is shared; every thread of the block takes part.
template <int Warps, typename T>
__device__ T block_before(T value, T* totals, T& all) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const T sum = warp_running(value);
    // An inclusive sum less one's own is not the sum of those before: rounding.
    T before = __shfl_up_sync(all_lanes, sum, 1);
    if (lane == 0) before = 0;
    __syncthreads();  // whoever read `totals` before is done
    if (lane == warp_size - 1) totals[warp] = sum;
    __syncthreads();
    all = 0;
    for (int w = 0; w < Warps; ++w) {
        if (w < warp) before += totals[w];
        all += totals[w];
    }
    return before;
}

/// Words of a set of tokens as bits.
__device__ __forceinline__ int words_of(int vocab) {
    return (vocab + 31) / 32;
}

/// Calls `use(place, number)` for the set bits of words[0, count), rising, each thread of a block of Warps
/// warps for a run of words of its own; returns how many there are. `totals` as above.
template <int Warps, typename Use>
__device__ int list_bits(const std::uint32_t* words, int count, int* totals, Use use) {
    constexpr int threads = Warps * warp_size;
    const int each = (count + threads - 1) / threads;
    const int first = min(static_cast<int>(threadIdx.x) * each, count), end = min(first + each, count);
    int mine = 0, all = 0;
    for (int w = first; w < end; ++w) mine += __popc(words[w]);
    int at = block_before<Warps>(mine, totals, all);
    for (int w = first; w < end; ++w)
        for (std::uint32_t word = words[w]; word != 0; word &= word - 1)
            use(at++, w * 32 + __ffs(static_cast<int>(word)) - 1);
    return all;
}

}  // namespace draftscope::kernels::cuda
