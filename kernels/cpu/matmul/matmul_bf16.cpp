#include "kernels/cpu/matmul/matmul_bf16_pairs.h"
#include "kernels/cpu/matmul/matmul_int4_vnni.h"
#include "kernels/cpu/matmul/matmul_int8_vnni.h"

namespace draftscope::kernels {
namespace {

/// bf16 weights and activations by vdpbf16ps: two products per input pair, pairs ascending.
struct Bf16DotTile {
    static constexpr int blocks = 2;
    static constexpr int rows = 12;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        const long pairs = (work.k + 1) / 2;
        const long stride = pairs * lanes;
        const std::uint32_t* w = reinterpret_cast<const std::uint32_t*>(work.weights) + block * stride;
        const std::uint32_t* x = work.x_bf16 + row * pairs;
        StreamReader stream(work);
        __m512 sum[T][R];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[t][r] = _mm512_setzero_ps();
        }
        for (long p = 0; p < pairs; ++p) {
            __m512bh wide[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                stream.fetch_line();
                wide[r] = reinterpret_cast<__m512bh>(_mm512_load_si512(w + r * stride + p * lanes));
            }
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const auto pair =
                    reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x[t * pairs + p])));
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) sum[t][r] = _mm512_dpbf16_ps(sum[t][r], wide[r], pair);
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

const MatmulKernels matmul_kernels_bf16 = {TileWalk<F32Tile>::run,
                                           TileWalk<Bf16DotTile>::run,
                                           TileWalk<Int8VnniTile>::run,
                                           TileWalk<Int4VnniTile<false>>::run,
                                           TileWalk<Int4VnniTile<true>>::run,
                                           true,
                                           quantise_row,
                                           quantise_row_int4,
                                           to_bf16_pairs};

}  // namespace draftscope::kernels
