#pragma once

#include "kernels/cpu/matmul/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

inline __m512 half_floats(const std::uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

/// int4 by vpdpbusd, with the weights as its unsigned operand. The 32 products of a group are summed exactly
/// and scaled into the f32 sum. Then the group's minimum times the sum of its activations is added, groups
/// ascending. Symmetric weights have no minimum: a group's sum starts at -8 times the sum of its activations.
template <bool Symmetric>
struct Int4VnniTile {
    static constexpr int blocks = 2;
    static constexpr int rows = Symmetric ? 5 : 4;
    static constexpr int scale_rows = Symmetric ? 1 : 2;
    /// Distance of the scales' prefetches: the groups that the weights' prefetch distance covers.
    static constexpr int scales_ahead = 32 * scale_rows * lanes;
    static constexpr int single_rows = 12;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const long groups = (work.k + int4_block - 1) / int4_block;
        const long stride = groups * int4_block / 2 * lanes;
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights) + block * stride;
        const std::uint16_t* scales = work.scales + block * groups * scale_rows * lanes;
        const std::int8_t* x = work.x_int8 + row * groups * int4_block;
        const float* x_scale = work.x_scale + row * groups;
        const std::int32_t* x_start = work.x_start + row * groups;
        const float* x_sum = work.x_sum + row * groups;
        const __m512i low = _mm512_set1_epi8(15);
        // Two chains for few rows, to hide latency.
        constexpr int chains = R == 1 && T <= 4 ? 2 : 1;
        StreamReader stream(work);
        StridedPointers<T> inputs(x, groups * int4_block);
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (long g = 0; g < groups; ++g) {
            __m512i dot[T][R][chains];
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    dot[t][r][0] =
                        Symmetric ? _mm512_set1_epi32(x_start[t * groups + g]) : _mm512_setzero_si512();
                    if constexpr (chains == 2) dot[t][r][1] = _mm512_setzero_si512();
                }
            }
            const auto* at = w + g * (int4_block / 2) * lanes;
            stream.fetch_lines<R * int4_block / 8>();
#pragma GCC unroll 4
            for (int j = 0; j < int4_block / 8; ++j, at += 4 * lanes) {
                __m512i first[R];
                __m512i second[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    const __m512i both = _mm512_load_si512(at + r * stride);
                    first[r] = _mm512_and_si512(both, low);
                    second[r] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
                }
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const std::int8_t* at_row = inputs[t] + 8 * j;
                    const __m512i a = four_inputs(at_row);
                    const __m512i b = four_inputs(at_row + 4);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) {
                        dot[t][r][0] = _mm512_dpbusd_epi32(dot[t][r][0], first[r], a);
                        dot[t][r][chains - 1] = _mm512_dpbusd_epi32(dot[t][r][chains - 1], second[r], b);
                    }
                }
            }
            inputs.advance(int4_block);
            if constexpr (chains == 2) {
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) dot[t][0][0] = _mm512_add_epi32(dot[t][0][0], dot[t][0][1]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const std::uint16_t* group_scales = scales + (r * groups + g) * scale_rows * lanes;
                __builtin_prefetch(group_scales + scales_ahead, 0, 2);
                const __m512 scale = half_floats(group_scales);
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[t * groups + g]));
                    sum[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][r][0]), factor, sum[t][r]);
                    if constexpr (!Symmetric) {
                        sum[t][r] = _mm512_fmadd_ps(half_floats(group_scales + lanes),
                                                    _mm512_set1_ps(x_sum[t * groups + g]), sum[t][r]);
                    }
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
