#pragma once

#include "kernels/cpu/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

/// int8 by vpdpbusd: the 32 products of a group are summed exactly in 32 bits, then scaled into the f32 sum,
/// groups ascending.
struct Int8VnniTile {
    static constexpr int blocks = 2;
    static constexpr int rows = 6;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const long groups = (work.k + quant_block - 1) / quant_block;
        const auto* w =
            reinterpret_cast<const std::uint8_t*>(work.weights) + block * groups * quant_block * lanes;
        const std::uint16_t* scales = work.scales + block * groups * lanes;
        const std::int8_t* x = work.x_int8 + row * groups * quant_block;
        const float* x_scale = work.x_scale + row * groups;
        const std::int32_t* x_start = work.x_start + row * groups;
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (long g = 0; g < groups; ++g) {
            __m512i dot[T][R];
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) dot[t][r] = _mm512_set1_epi32(x_start[t * groups + g]);
            }
#pragma GCC unroll 8
            for (int j = 0; j < quant_block / 4; ++j) {
                __m512i wide[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    prefetch_weights<T>(w + ((r * groups + g) * quant_block + 4 * j) * lanes);
                    wide[r] = _mm512_load_si512(w + ((r * groups + g) * quant_block + 4 * j) * lanes);
                }
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    int four;
                    __builtin_memcpy(&four, x + (t * groups + g) * quant_block + 4 * j, sizeof(four));
                    const __m512i values = _mm512_set1_epi32(four);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) dot[t][r] = _mm512_dpbusd_epi32(dot[t][r], wide[r], values);
                }
            }
            __m512 w_scale[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const __m256i half =
                    _mm256_load_si256(reinterpret_cast<const __m256i*>(scales + (r * groups + g) * lanes));
                w_scale[r] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
            }
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const __m512 factor = _mm512_set1_ps(x_scale[t * groups + g]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    sum[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][r]),
                                                _mm512_mul_ps(w_scale[r], factor), sum[t][r]);
                }
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) store_tile_row(work, block + r, row + t, sum[t][r]);
        }
    }
};

}  // namespace
}  // namespace draftscope::kernels
