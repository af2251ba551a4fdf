#pragma once

#include <immintrin.h>

#include "kernels/cpu/matmul/matmul_tiles.h"

/// Only AVX-512 files include this header. Internal linkage: each file has its own copy.
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

/// Loads 16 scales of one group as f32.
inline __m512 load_scales(const std::uint16_t* scales) {
    const __m256i half = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Broadcasts four int8 activations to every lane.
inline __m512i four_inputs(const std::int8_t* x) {
    int packed;
    __builtin_memcpy(&packed, x, sizeof(packed));
    return _mm512_set1_epi32(packed);
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
        StreamReader stream(work);
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
                stream.fetch_line();
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

/// Quantises `Parts` times 16 values of one group to at most `most` in size; returns the scale.
template <int Parts>
inline float quantise_group(const float* x, int count, int max_quant, __m512i (&q)[Parts]) {
    // Below this the reciprocal would overflow; such a block adds nothing that f32 sums would keep.
    constexpr float smallest = 1e-30f;
    __m512 part[Parts];
    if (count >= Parts * lanes) {
#pragma GCC unroll 8
        for (int v = 0; v < Parts; ++v) part[v] = _mm512_loadu_ps(x + v * lanes);
    } else {
#pragma GCC unroll 8
        for (int v = 0; v < Parts; ++v) {
            const int left = count - v * lanes;
            const auto mask = static_cast<__mmask16>(left >= lanes ? 0xffffu
                                                     : left <= 0   ? 0u
                                                                   : (1u << left) - 1u);
            part[v] = _mm512_maskz_loadu_ps(mask, x + v * lanes);
        }
    }
    // Two maxima shorten the dependency chain.
    __m512 top[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 8
    for (int v = 0; v < Parts; ++v) top[v % 2] = _mm512_max_ps(top[v % 2], _mm512_abs_ps(part[v]));
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(top[0], top[1]));
    const auto limit = static_cast<float>(max_quant);
    const __m512 inverse = _mm512_set1_ps(largest > smallest ? limit / largest : 0.0f);
#pragma GCC unroll 8
    for (int v = 0; v < Parts; ++v) q[v] = _mm512_cvtps_epi32(_mm512_mul_ps(part[v], inverse));
    return largest > smallest ? largest / limit : 0.0f;
}

/// Stores 64 values, each fitting a byte, in order.
inline void store_bytes(const __m512i* q, std::int8_t* to) {
    const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    // Packing keeps the quarters of a register in place.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, packed));
}

/// Quantises one row for int8 weights (MatmulKernels::quantise): the high bytes of all groups, then the low
/// ones.
inline void quantise_row(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start) {
    constexpr int parts = quant_block / lanes, at_once = 4;
    const int groups = (k + quant_block - 1) / quant_block;
    std::int8_t* low = q + groups * quant_block;
    const __m512i half = _mm512_set1_epi32(1 << (int8_low_bits - 1));
    for (int g = 0; g < groups; ++g, q += quant_block, low += quant_block) {
        __m512i values[parts], up[parts];
        scale[g] = quantise_group(x + g * quant_block, k - g * quant_block, 127 << int8_low_bits, values);
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int v = 0; v < parts; ++v) {
            sum = _mm512_add_epi32(sum, values[v]);
            up[v] = _mm512_srai_epi32(_mm512_add_epi32(values[v], half), int8_low_bits);
            values[v] = _mm512_sub_epi32(values[v], _mm512_slli_epi32(up[v], int8_low_bits));
        }
#pragma GCC unroll 8
        for (int v = 0; v < parts; v += at_once) {
            store_bytes(up + v, q + v * lanes);
            store_bytes(values + v, low + v * lanes);
        }
        start[g] = -int8_offset * _mm512_reduce_add_epi32(sum);
    }
}

/// Quantises one row for int4 weights.
inline void quantise_row_int4(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start,
                              float* sum) {
    for (int g = 0; g * int4_block < k; ++g, q += int4_block) {
        __m512i values[int4_block / lanes];
        scale[g] = quantise_group(x + g * int4_block, k - g * int4_block, 127, values);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(values[0]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + lanes), _mm512_cvtepi32_epi8(values[1]));
        const int total = _mm512_reduce_add_epi32(_mm512_add_epi32(values[0], values[1]));
        start[g] = -int4_offset * total;
        sum[g] = static_cast<float>(total) * scale[g];
    }
}

}  // namespace
}  // namespace draftscope::kernels
