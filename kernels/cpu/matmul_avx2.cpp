#include "kernels/cpu/matmul_avx2.h"

#include <immintrin.h>

#include "kernels/cpu/matmul_tiles.h"

namespace draftscope::kernels {
namespace {

/// A block of 16 outputs is two registers.
constexpr int halves = 2;

void store_tile_row(const MatmulWork& work, int block, int row, const __m256 (&sum)[halves]) {
    for (int h = 0; h < halves; ++h) {
        const int first = block * lanes + 8 * h;
        const __m256i mask =
            _mm256_cmpgt_epi32(_mm256_set1_epi32(work.n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        __m256 y = sum[h];
        if (work.bias != nullptr) y = _mm256_add_ps(y, _mm256_maskload_ps(work.bias + first, mask));
        _mm256_maskstore_ps(work.y + row * work.y_stride + first, mask, y);
    }
}

template <int T>
void clear(__m256 (&sum)[T][halves]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        sum[t][0] = _mm256_setzero_ps();
        sum[t][1] = _mm256_setzero_ps();
    }
}

/// f32: one multiply-add per input, ascending.
struct F32Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 6;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        const float* w =
            reinterpret_cast<const float*>(work.weights) + static_cast<long>(block) * work.k * lanes;
        const float* x = work.x + row * work.x_stride;
        __m256 sum[T][halves];
        clear<T>(sum);
        for (int i = 0; i < work.k; ++i) {
            const __m256 lo = _mm256_load_ps(w + i * lanes);
            const __m256 hi = _mm256_load_ps(w + i * lanes + 8);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const __m256 value = _mm256_set1_ps(x[t * work.x_stride + i]);
                sum[t][0] = _mm256_fmadd_ps(lo, value, sum[t][0]);
                sum[t][1] = _mm256_fmadd_ps(hi, value, sum[t][1]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_tile_row(work, block, row + t, sum[t]);
    }
};

/// bf16 weights, f32 activations: each pair of weights becomes two multiply-adds, even input first.
struct Bf16Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 4;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        const int pairs = (work.k + 1) / 2;
        const std::uint32_t* w =
            reinterpret_cast<const std::uint32_t*>(work.weights) + static_cast<long>(block) * pairs * lanes;
        const float* x = work.x + row * work.x_stride;
        const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        __m256 sum[T][halves];
        clear<T>(sum);
        for (int p = 0; p < pairs; ++p) {
            const int second = 2 * p + 1 < work.k ? 1 : 0;  // times a zero weight when padded
            __m256 even[halves];
            __m256 odd[halves];
            for (int h = 0; h < halves; ++h) {
                const __m256i both =
                    _mm256_load_si256(reinterpret_cast<const __m256i*>(w + p * lanes + 8 * h));
                even[h] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
                odd[h] = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
            }
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const float* at = x + t * work.x_stride + 2 * p;
                const __m256 a = _mm256_set1_ps(at[0]);
                const __m256 b = _mm256_set1_ps(at[second]);
                for (int h = 0; h < halves; ++h) {
                    sum[t][h] = _mm256_fmadd_ps(even[h], a, sum[t][h]);
                    sum[t][h] = _mm256_fmadd_ps(odd[h], b, sum[t][h]);
                }
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_tile_row(work, block, row + t, sum[t]);
    }
};

/// int8 by vpmaddubsw. Its unsigned operand must be |x| and its signed one w with x's sign: both stay within
/// 127, so that a pair of products fits 16 bits (2 * 127 * 127 < 32768) and nothing saturates. The sums of a
/// group are exact, as on every other path.
struct Int8Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 2;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        const long groups = (work.k + quant_block - 1) / quant_block;
        const long padded = (work.k + int8_padding - 1) / int8_padding * int8_padding;
        const auto* w = reinterpret_cast<const std::int8_t*>(work.weights) + block * padded * lanes;
        const std::uint16_t* scales = work.scales + block * groups * lanes;
        const std::int8_t* x = work.x_int8 + row * groups * quant_block;
        const __m256i ones = _mm256_set1_epi16(1);
        __m256 sum[T][halves];
        clear<T>(sum);
        for (long g = 0; g < groups; ++g) {
            __m256i dot[T][halves] = {};
            const long left = (padded - g * quant_block) / 4;
            const long steps = left < quant_block / 4 ? left : quant_block / 4;
#pragma GCC unroll 4
            for (long j = 0; j < steps; ++j) {
                __m256i wide[halves];
                for (int h = 0; h < halves; ++h) {
                    const auto* at = w + (g * quant_block + 4 * j) * lanes + 32 * h;
                    wide[h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
                }
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    int four;
                    __builtin_memcpy(&four, x + (t * groups + g) * quant_block + 4 * j, sizeof(four));
                    const __m256i values = _mm256_set1_epi32(four);
                    const __m256i size = _mm256_abs_epi8(values);
                    for (int h = 0; h < halves; ++h) {
                        const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(wide[h], values));
                        dot[t][h] = _mm256_add_epi32(dot[t][h], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            for (int h = 0; h < halves; ++h) {
                const __m128i packed =
                    _mm_load_si128(reinterpret_cast<const __m128i*>(scales + g * lanes + 8 * h));
                const __m256 w_scale =
                    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const __m256 factor = _mm256_set1_ps(work.x_scale[(row + t) * groups + g]);
                    sum[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t][h]), _mm256_mul_ps(w_scale, factor),
                                                sum[t][h]);
                }
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_tile_row(work, block, row + t, sum[t]);
    }
};

/// int4 by vpmaddubsw: weights are the unsigned operand as they are. Eight products of up to 15 * 127 fit 16
/// bits twice over, so a group of 32 is widened once.
struct Int4Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 2;

    static __m256 half_floats(const std::uint16_t* at) {
        return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
    }

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        const long groups = (work.k + int4_block - 1) / int4_block;
        const long wide = (work.k + quant_block - 1) / quant_block;
        const auto* w =
            reinterpret_cast<const std::uint8_t*>(work.weights) + block * groups * int4_block / 2 * lanes;
        const std::uint16_t* scales = work.scales + block * groups * 2 * lanes;
        const std::int8_t* x = work.x_int8 + row * wide * quant_block;
        const __m256i ones = _mm256_set1_epi16(1);
        const __m256i low = _mm256_set1_epi8(15);
        __m256 sum[T][halves];
        clear<T>(sum);
        for (long g = 0; g < groups; ++g) {
            // One half after the other: both at once would not fit sixteen registers.
            for (int h = 0; h < halves; ++h) {
                __m256i pairs[T] = {};
#pragma GCC unroll 4
                for (int j = 0; j < int4_block / 8; ++j) {
                    const auto* at = w + (g * int4_block / 2 + 4 * j) * lanes + 32 * h;
                    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
                    const __m256i first = _mm256_and_si256(both, low);
                    const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t) {
                        int four[2];
                        __builtin_memcpy(four, x + t * wide * quant_block + g * int4_block + 8 * j,
                                         sizeof(four));
                        pairs[t] = _mm256_add_epi16(pairs[t],
                                                    _mm256_maddubs_epi16(first, _mm256_set1_epi32(four[0])));
                        pairs[t] = _mm256_add_epi16(pairs[t],
                                                    _mm256_maddubs_epi16(second, _mm256_set1_epi32(four[1])));
                    }
                }
                // Else GCC keeps the activations of one half for the other, which costs more registers than
                // there are.
                asm volatile("" : : : "memory");
                const __m256 scale = half_floats(scales + g * 2 * lanes + 8 * h);
                const __m256 minimum = half_floats(scales + (g * 2 + 1) * lanes + 8 * h);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const __m256 x_scale = _mm256_set1_ps(work.x_scale[(row + t) * wide + g / 2]);
                    const __m256 x_sum = _mm256_set1_ps(work.x_sum[(row + t) * wide * 2 + g]);
                    const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs[t], ones));
                    sum[t][h] = _mm256_fmadd_ps(dot, _mm256_mul_ps(scale, x_scale), sum[t][h]);
                    sum[t][h] = _mm256_fmadd_ps(minimum, x_sum, sum[t][h]);
                }
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_tile_row(work, block, row + t, sum[t]);
    }
};

__m256 magnitude(__m256 a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

float largest_of(__m256 a) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

}  // namespace

void matmul_int8_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Int8Tile>::run(work, begin, end);
}

void matmul_int4_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Int4Tile>::run(work, begin, end);
}

void matmul_quantise_avx2(const float* x, int k, std::int8_t* q, float* scale, std::int32_t*) {
    // Below this the reciprocal would overflow; such a block adds nothing that f32 sums would keep.
    constexpr float smallest = 1e-30f;
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int g = 0; g * quant_block < k; ++g) {
        __m256 in[8];
        __m256 most = _mm256_setzero_ps();
        for (int v = 0; v < 8; ++v) {
            const int first = g * quant_block + 8 * v;
            in[v] = _mm256_maskload_ps(x + first, _mm256_cmpgt_epi32(_mm256_set1_epi32(k - first), index));
            most = _mm256_max_ps(most, magnitude(in[v]));
        }
        const float largest = largest_of(most);
        scale[g] = largest > smallest ? largest / 127.0f : 0.0f;
        const __m256 inverse = _mm256_set1_ps(largest > smallest ? 127.0f / largest : 0.0f);
        __m256i rounded[8];
        for (int v = 0; v < 8; ++v) rounded[v] = _mm256_cvtps_epi32(_mm256_mul_ps(in[v], inverse));
        for (int v = 0; v < 8; v += 4) {
            // The packs work within 128-bit halves; the permutation puts the eight pieces back in order.
            const __m256i low = _mm256_packs_epi32(rounded[v], rounded[v + 1]);
            const __m256i high = _mm256_packs_epi32(rounded[v + 2], rounded[v + 3]);
            const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                              _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + g * quant_block + 8 * v), bytes);
        }
    }
}

const MatmulKernels matmul_kernels_avx2 = {TileWalk<F32Tile>::run,
                                           TileWalk<Bf16Tile>::run,
                                           matmul_int8_avx2,
                                           matmul_int4_avx2,
                                           false,
                                           matmul_quantise_avx2,
                                           nullptr};

}  // namespace draftscope::kernels
