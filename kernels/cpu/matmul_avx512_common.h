#pragma once

#include <immintrin.h>

#include "kernels/cpu/matmul_tiles.h"

/// Included by the AVX-512 files only. Internal linkage: each file has its own copy for its own instruction
/// set.
namespace draftscope::kernels {
namespace {

inline void store_tile_row(const MatmulWork& work, int block, int row, __m512 sum) {
    const int left = work.n - block * lanes;
    const auto mask = static_cast<__mmask16>(left >= lanes ? 0xffffu : (1u << left) - 1u);
    if (work.bias != nullptr) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, work.bias + block * lanes));
    }
    _mm512_mask_storeu_ps(work.y + row * work.y_stride + block * lanes, mask, sum);
}

/// Few rows stream the weights from memory; the hardware prefetcher stops at each 4 KiB page, this does not.
template <int T>
inline void prefetch_weights(const void* at) {
    constexpr int ahead = 2048;
    if constexpr (T <= 4) _mm_prefetch(static_cast<const char*>(at) + ahead, _MM_HINT_T0);
}

/// 16 scales of one group as f32.
inline __m512 load_scales(const std::uint16_t* scales) {
    const __m256i half = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// f32: one multiply-add per input, ascending.
struct F32Tile {
    static constexpr int blocks = 2;
    static constexpr int rows = 12;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const auto stride = static_cast<long>(work.k) * lanes;
        const float* w = reinterpret_cast<const float*>(work.weights) + block * stride;
        const float* x = work.x + row * work.x_stride;
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (int i = 0; i < work.k; ++i) {
            __m512 wide[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                prefetch_weights<T>(w + r * stride + i * lanes);
                wide[r] = _mm512_load_ps(w + r * stride + i * lanes);
            }
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const __m512 value = _mm512_set1_ps(x[t * work.x_stride + i]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) sum[t][r] = _mm512_fmadd_ps(wide[r], value, sum[t][r]);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) store_tile_row(work, block + r, row + t, sum[t][r]);
        }
    }
};

/// Symmetric int8 of one row, 64 values a scale.
inline void quantise_row(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start) {
    // Below this the reciprocal would overflow; such a block adds nothing that f32 sums would keep.
    constexpr float smallest = 1e-30f;
    for (int g = 0; g * quant_block < k; ++g) {
        const float* in = x + g * quant_block;
        const int left = k - g * quant_block;
        const std::uint64_t mask =
            left >= quant_block ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - std::uint64_t{1};
        __m512 part[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
            part[v] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16 * v), in + 16 * v);
        }
        const __m512 low = _mm512_max_ps(_mm512_abs_ps(part[0]), _mm512_abs_ps(part[1]));
        const __m512 high = _mm512_max_ps(_mm512_abs_ps(part[2]), _mm512_abs_ps(part[3]));
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
        const float inverse = largest > smallest ? 127.0f / largest : 0.0f;
        scale[g] = largest > smallest ? largest / 127.0f : 0.0f;
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
            const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(part[v], _mm512_set1_ps(inverse)));
            sum = _mm512_add_epi32(sum, rounded);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(q + g * quant_block) + v,
                             _mm512_cvtsepi32_epi8(rounded));
        }
        start[g] = -int8_offset * _mm512_reduce_add_epi32(sum);
    }
}

}  // namespace
}  // namespace draftscope::kernels
