#pragma once

#include "kernels/cpu/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

/// int4 by vpdpbusd, whose unsigned operand the weights are as they lie: the 32 products of a group are
/// summed exactly, those of the activations' high and low halves apart, then scaled into the f32 sum, then
/// the group's minimum times the sum of its activations, groups ascending.
struct Int4VnniTile {
    static constexpr int blocks = 2;
    static constexpr int rows = 4;
    static constexpr int parts = quant_block / int4_block;

    static __m512 half_floats(const std::uint16_t* at) {
        return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
    }

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const long groups = (work.k + int4_block - 1) / int4_block;
        const long x_groups = (work.k + quant_block - 1) / quant_block;
        const long stride = groups * int4_block / 2 * lanes;
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights) + block * stride;
        const std::uint16_t* scales = work.scales + block * groups * 2 * lanes;
        const long width = 2 * x_groups * quant_block;
        const std::int8_t* x = work.x_int8 + row * width;
        const float* x_scale = work.x_scale + row * x_groups;
        const float* x_sum = work.x_sum + row * x_groups * parts;
        const __m512i low = _mm512_set1_epi8(15);
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (long g = 0; g < groups; ++g) {
            __m512i high[T][R];
            __m512i lower[T][R];
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) high[t][r] = lower[t][r] = _mm512_setzero_si512();
            }
            const auto* at = w + g * (int4_block / 2) * lanes;
            const std::int8_t* eight = x + g * 2 * int4_block;
#pragma GCC unroll 4
            for (int j = 0; j < int4_block / 8; ++j, at += 4 * lanes, eight += 8) {
                __m512i first[R];
                __m512i second[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    prefetch_weights<T>(at + r * stride);
                    const __m512i both = _mm512_load_si512(at + r * stride);
                    first[r] = _mm512_and_si512(both, low);
                    second[r] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
                }
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const std::int8_t* at_row = eight + t * width;
                    const __m512i a = four_inputs(at_row);
                    const __m512i b = four_inputs(at_row + 4);
                    const __m512i c = four_inputs(at_row + int4_block);
                    const __m512i d = four_inputs(at_row + int4_block + 4);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) {
                        high[t][r] = _mm512_dpbusd_epi32(high[t][r], first[r], a);
                        high[t][r] = _mm512_dpbusd_epi32(high[t][r], second[r], b);
                        lower[t][r] = _mm512_dpbusd_epi32(lower[t][r], first[r], c);
                        lower[t][r] = _mm512_dpbusd_epi32(lower[t][r], second[r], d);
                    }
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const std::uint16_t* pair = scales + (r * groups + g) * 2 * lanes;
                const __m512 scale = half_floats(pair);
                const __m512 minimum = half_floats(pair + lanes);
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const __m512i dot =
                        _mm512_add_epi32(_mm512_slli_epi32(high[t][r], int4_low_bits), lower[t][r]);
                    const __m512 factor =
                        _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[t * x_groups + g / parts]));
                    sum[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, sum[t][r]);
                    sum[t][r] =
                        _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_sum[t * x_groups * parts + g]), sum[t][r]);
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
