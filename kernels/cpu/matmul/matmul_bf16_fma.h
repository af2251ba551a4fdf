#pragma once

#include "kernels/cpu/matmul/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

/// bf16 weights, f32 activations: each pair of weights takes two multiply-adds, even input first.
struct Bf16FmaTile {
    static constexpr int blocks = 2;
    static constexpr int rows = 8;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const int pairs = (work.k + 1) / 2;
        const auto stride = static_cast<long>(pairs) * lanes;
        const std::uint32_t* w = reinterpret_cast<const std::uint32_t*>(work.weights) + block * stride;
        const float* x = work.x + row * work.x_stride;
        StreamReader stream(work);
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (int p = 0; p < pairs; ++p) {
            const bool is_pair = 2 * p + 1 < work.k;
            __m512 even[R];
            __m512 odd[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                stream.fetch_line();
                const __m512i both = _mm512_load_si512(w + r * stride + p * lanes);
                even[r] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
                odd[r] = _mm512_castsi512_ps(
                    _mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
            }
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const float* at = x + t * work.x_stride + 2 * p;
                const __m512 first = _mm512_set1_ps(at[0]);
                // multiplied by a zero weight if padded
                const __m512 second = _mm512_set1_ps(at[is_pair ? 1 : 0]);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    sum[t][r] = _mm512_fmadd_ps(even[r], first, sum[t][r]);
                    sum[t][r] = _mm512_fmadd_ps(odd[r], second, sum[t][r]);
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
