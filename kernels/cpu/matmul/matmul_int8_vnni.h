#pragma once

#include "kernels/cpu/matmul/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

/// int8 by vpdpbusd. The 128 products of a group are summed exactly in 32 bits, separately for the
/// activations' high and low halves. They are then scaled into the f32 sum, groups ascending. The instruction
/// requires one unsigned operand: weights become value + 128 in the register, and a row's group sum starts at
/// -128 times the sum of its activations.
struct Int8VnniTile {
    static constexpr int blocks = 2;
    static constexpr int rows = 4;
    static constexpr int single_rows = 12;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const long groups = (work.k + quant_block - 1) / quant_block;
        const long stride = (work.k + int8_padding - 1) / int8_padding * int8_padding * lanes;
        const auto* w = reinterpret_cast<const std::int8_t*>(work.weights) + block * stride;
        const std::uint16_t* scales = work.scales + block * groups * lanes;
        const long width = groups * quant_block;
        const std::int8_t* x = work.x_int8 + row * 2 * width;
        const float* x_scale = work.x_scale + row * groups;
        const std::int32_t* x_start = work.x_start + row * groups;
        const __m512i offset = _mm512_set1_epi8(static_cast<char>(int8_offset));
        // Two chains for a single sum, to hide latency.
        constexpr int chains = T * R == 1 ? 2 : 1;
        constexpr int at_once = 4;  ///< lines of weights per block
        // The loop over inputs needs two registers per sum, so the f32 sums of a high tile are in memory.
        constexpr bool sums_in_memory = 3 * T * R > 24;
        StreamReader stream(work);
        StridedPointers<2 * T> four(x, width);
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (long g = 0; g < groups; ++g) {
            __m512i high[T][R][chains];
            __m512i low[T][R][chains];
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    high[t][r][0] = _mm512_setzero_si512();
                    low[t][r][0] = _mm512_set1_epi32(x_start[t * groups + g]);
                    if constexpr (chains == 2) high[t][r][1] = low[t][r][1] = _mm512_setzero_si512();
                }
            }
            const auto* at = w + g * quant_block * lanes;
            const long left = stride - g * quant_block * lanes;
            const auto* end = at + (left < quant_block * lanes ? left : quant_block * lanes);
            const auto step = [&](int chain) __attribute__((always_inline)) {
                __m512i wide[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    wide[r] = _mm512_xor_si512(_mm512_load_si512(at + r * stride), offset);
                }
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const __m512i a = four_inputs(four[2 * t]);
                    const __m512i b = four_inputs(four[2 * t + 1]);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) {
                        high[t][r][chain] = _mm512_dpbusd_epi32(high[t][r][chain], wide[r], a);
                        low[t][r][chain] = _mm512_dpbusd_epi32(low[t][r][chain], wide[r], b);
                    }
                }
                at += 4 * lanes;
                four.advance(4);
            };
#pragma GCC unroll 1
            while (end - at >= at_once * 4 * lanes) {
                stream.fetch_lines<at_once * R>();
#pragma GCC unroll 4
                for (int q = 0; q < at_once; ++q) step(q % chains);
            }
#pragma GCC unroll 1
            while (at < end) {
                stream.fetch_lines<R>();
                step(0);
            }
            if constexpr (chains == 2) {
                high[0][0][0] = _mm512_add_epi32(high[0][0][0], high[0][0][1]);
                low[0][0][0] = _mm512_add_epi32(low[0][0][0], low[0][0][1]);
            }
            __m512 w_scale[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) w_scale[r] = load_scales(scales + (r * groups + g) * lanes);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const __m512 factor = _mm512_set1_ps(x_scale[t * groups + g]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    const __m512i dot =
                        _mm512_add_epi32(_mm512_slli_epi32(high[t][r][0], int8_low_bits), low[t][r][0]);
                    sum[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(w_scale[r], factor),
                                                sum[t][r]);
                }
            }
            if constexpr (sums_in_memory) asm volatile("" : "+m"(sum));
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
