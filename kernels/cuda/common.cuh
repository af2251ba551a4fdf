#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/simt.h"
#include "kernels/ops.h"
#if !defined(DS_SIMT_HOST)
#include <cuda_fp16.h>
#endif

/// Helpers shared by several kernels. A warp has 32 lanes; all of them take part in each shuffle.
namespace draftscope::kernels::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

__device__ __forceinline__ float from_bf16(half_t value) {
    return __uint_as_float(static_cast<std::uint32_t>(value) << 16);
}

/// Nearest bf16, ties to even; NaN stays NaN. Same bits as the host's to_bf16().
__device__ __forceinline__ half_t to_bf16(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<half_t>(bits >> 16 | 0x40u);
    return static_cast<half_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// Lets the next kernel start, and waits until the previous one has ended and its writes are
/// visible. Does nothing in a kernel that started after it. Before the call, a kernel reads only its
/// parameters and constants of the model (load_constant(), load_weights()), and writes nothing. Every thread
/// calls it, so that the end of a kernel implies the end of all before it.
__device__ __forceinline__ void wait_for_previous() {
#if defined(DS_SIMT_HOST)
    simt::wait_for_previous();
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Reads a constant of the model, which no kernel writes.
template <typename T>
__device__ __forceinline__ T load_constant(const T* from) {
#if defined(DS_SIMT_HOST)
    simt::show(from);
#endif
    return *from;
}

template <Float16Kind H>
__device__ __forceinline__ float from_half(half_t value) {
    if constexpr (H == Float16Kind::bf16) return from_bf16(value);
#if defined(DS_SIMT_HOST)
    return f16_to_float(value);
#else
    return __half2float(__ushort_as_half(value));
#endif
}
/// Same bits as the host's float_to_f16() or to_bf16(), except for NaN payloads.
template <Float16Kind H>
__device__ __forceinline__ half_t to_half(float value) {
    if constexpr (H == Float16Kind::bf16) return to_bf16(value);
#if defined(DS_SIMT_HOST)
    return float_to_f16(value);
#else
    return __half_as_ushort(__float2half_rn(value));
#endif
}
/// Calls `run` with the format as a type, for kernels that support both.
template <typename Run>
void with_dtype(Float16Kind dtype, Run run) {
    if (dtype == Float16Kind::f16)
        run(std::integral_constant<Float16Kind, Float16Kind::f16>());
    else
        run(std::integral_constant<Float16Kind, Float16Kind::bf16>());
}

/// Encodes (value, index) as one number: greater means larger value, then lower index. NaN is the lowest
/// value.
__device__ __forceinline__ std::uint64_t rank_key(float value, std::uint32_t index) {
    const std::uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
    std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    if (value != value) ordered = 0;
    return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - index);
}
__device__ __forceinline__ std::uint32_t key_index(std::uint64_t key) {
    return 0xffffffffu - static_cast<std::uint32_t>(key);
}
/// Decodes the value of a key; -0 becomes +0.
__device__ __forceinline__ float key_value(std::uint64_t key) {
    const auto ordered = static_cast<std::uint32_t>(key >> 32);
    if (ordered == 0) return __uint_as_float(0x7fc00000u);
    return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

/// Lower than the key of any value.
inline constexpr std::uint64_t no_key = 0;

/// One instruction reduces 32 bits over a warp: the upper half, then the lower half of the keys that share
/// it.
__device__ __forceinline__ std::uint64_t warp_max(std::uint64_t key) {
    const auto upper = static_cast<std::uint32_t>(key >> 32);
    const std::uint32_t top = __reduce_max_sync(all_lanes, upper);
    const std::uint32_t lower = upper == top ? static_cast<std::uint32_t>(key) : 0u;
    return static_cast<std::uint64_t>(top) << 32 | __reduce_max_sync(all_lanes, lower);
}
__device__ __forceinline__ float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, offset));
    return value;
}
/// Returns the sum to each lane, added in the same order.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(all_lanes, value, offset);
    return value;
}

/// Inclusive prefix sum of `value` over the lanes.
template <typename T>
__device__ __forceinline__ T warp_running(T value) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    for (int offset = 1; offset < warp_size; offset *= 2) {
        const T other = __shfl_up_sync(all_lanes, value, offset);
        if (lane >= offset) value += other;
    }
    return value;
}

/// Returns the largest of values [count] to every thread of a block of Warps warps. NaN is ignored; without a
/// value the result is -inf. All threads take part; `maxima` [Warps] is shared memory that is otherwise
/// unused.
template <int Warps>
__device__ float block_largest(const float* values, int count, float* maxima) {
    float max_value = -INFINITY;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += Warps * warp_size) {
        const float value = values[i];
        max_value = fmaxf(max_value, value == value ? value : -INFINITY);
    }
    max_value = warp_max(max_value);
    if (threadIdx.x % warp_size == 0) maxima[threadIdx.x / warp_size] = max_value;
    __syncthreads();
    for (int w = 0; w < Warps; ++w) max_value = fmaxf(max_value, maxima[w]);
    return max_value;
}

/// Probability of a token with that logit; 0 if masked or NaN.
__device__ __forceinline__ float token_probability(float logit, float scale, float log_norm,
                                                   float min_logit) {
    return logit >= min_logit ? fminf(expf(logit * scale - log_norm), 1.0f) : 0.0f;
}

/// Exclusive prefix sum and total of `value` over the threads of a block of Warps warps. Every thread takes
/// part; `totals` [Warps] is shared memory.
template <int Warps, typename T>
__device__ T block_before(T value, T* totals, T& all) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const T sum = warp_running(value);
    // Subtracting a thread's value from the inclusive sum would round differently.
    T before = __shfl_up_sync(all_lanes, sum, 1);
    if (lane == 0) before = 0;
    __syncthreads();  // readers of the previous `totals` are done
    if (lane == warp_size - 1) totals[warp] = sum;
    __syncthreads();
    all = 0;
    for (int w = 0; w < Warps; ++w) {
        if (w < warp) before += totals[w];
        all += totals[w];
    }
    return before;
}

/// Returns whether a block is the last of `blocks` that call this with the same ticket. It then sees what the
/// others wrote before. The ticket is zero at first and in the end. All threads take part.
__device__ inline bool is_last_block(std::uint32_t* ticket, int blocks) {
    DS_SHARED(int, last);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1u) + 1u == static_cast<std::uint32_t>(blocks) ? 1 : 0;
        if (last != 0) *ticket = 0;
    }
    __syncthreads();
    if (last == 0) return false;
    __threadfence();
    return true;
}

/// Words of a token bitmap.
__device__ __forceinline__ int bitmap_words(int vocab) {
    return (vocab + 31) / 32;
}

/// Calls `use(place, number)` for the set bits of words[0, count), ascending, and returns their number. Each
/// thread of a block of Warps warps handles a contiguous range of words; `totals` as above.
template <int Warps, typename Use>
__device__ int list_bits(const std::uint32_t* words, int count, int* totals, Use use) {
    constexpr int threads = Warps * warp_size;
    const int each = (count + threads - 1) / threads;
    const int first = min(static_cast<int>(threadIdx.x) * each, count), end = min(first + each, count);
    int local_count = 0, all = 0;
    for (int w = first; w < end; ++w) local_count += __popc(words[w]);
    int at = block_before<Warps>(local_count, totals, all);
    for (int w = first; w < end; ++w)
        for (std::uint32_t word = words[w]; word != 0; word &= word - 1)
            use(at++, w * 32 + __ffs(static_cast<int>(word)) - 1);
    return all;
}

}  // namespace draftscope::kernels::cuda
