#include "kernels/cpu/matmul/matmul_avx2.h"

#include "kernels/cpu/matmul/matmul_avx2_common.h"

namespace draftscope::kernels {
namespace {

/// An integer tile processes the halves of a block one after the other. Both at once would not fit sixteen
/// registers; the block is in L1 the second time.
template <typename Tile>
struct Halved {
    static constexpr int blocks = 1;
    static constexpr int rows = Tile::rows;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        for_each_half(work, [&](int h) { Tile::template run<T>(work, block, row, h); });
    }
};

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

/// bf16 weights, f32 activations: each pair of weights takes two multiply-adds, even input first.
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
            const int second = 2 * p + 1 < work.k ? 1 : 0;  // multiplied by a zero weight if padded
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

/// int8 by vpmaddwd on 16-bit values. The 128 products of a group, each up to 127 * 127 * 128, are summed
/// exactly in 32 bits, as on every other path.
struct Int8Tile {
    static constexpr int rows = 4;

    template <int T>
    [[gnu::noinline]] static void run(const MatmulWork& work, int block, int row, int h) {
        const long groups = (work.k + quant_block - 1) / quant_block;
        const long padded = (work.k + int8_padding - 1) / int8_padding * int8_padding;
        const auto* w = reinterpret_cast<const std::int8_t*>(work.weights) + block * padded * lanes + 32 * h;
        const std::uint16_t* scales = work.scales + block * groups * lanes + 8 * h;
        const long width = groups * quant_block;
        const auto* x = reinterpret_cast<const std::int16_t*>(work.x_int8) + row * width;
        StreamReader stream(work);
        __m256 sum[T] = {};
        for (long g = 0; g < groups; ++g) {
            const long last = (g + 1) * quant_block < padded ? (g + 1) * quant_block : padded;
            __m256i dot[T][2] = {};  // of four outputs each, two sums per output
            for_each_quad(
                stream, g * quant_block, last, [&](long i) __attribute__((always_inline)) {
                    const auto* at = reinterpret_cast<const __m128i*>(w + i * lanes);
                    const __m256i first = _mm256_cvtepi8_epi16(_mm_load_si128(at));
                    const __m256i second = _mm256_cvtepi8_epi16(_mm_load_si128(at + 1));
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t) {
                        long long four;
                        __builtin_memcpy(&four, x + t * width + i, sizeof(four));
                        const __m256i values = _mm256_set1_epi64x(four);
                        dot[t][0] = _mm256_add_epi32(dot[t][0], _mm256_madd_epi16(first, values));
                        dot[t][1] = _mm256_add_epi32(dot[t][1], _mm256_madd_epi16(second, values));
                    }
                });
            const __m128i packed = _mm_load_si128(reinterpret_cast<const __m128i*>(scales + g * lanes));
            const __m256 w_scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const __m256 factor = _mm256_set1_ps(work.x_scale[(row + t) * groups + g]);
                // Sums of pairs: outputs 0 1 4 5 and 2 3 6 7.
                const __m256i pairs = _mm256_hadd_epi32(dot[t][0], dot[t][1]);
                const __m256 all = _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(pairs, 0xd8));
                sum[t] = _mm256_fmadd_ps(all, _mm256_mul_ps(w_scale, factor), sum[t]);
            }
            if constexpr (T > 3) asm volatile("" : "+m"(sum));  // the loop over inputs needs the registers
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_half(work, block, row + t, h, sum[t]);
    }
};

/// int4 by vpmaddubsw, with the weights as the unsigned operand. Sixteen products of up to 15 * 127 fit 16
/// bits, so a group of 32 is widened once.
template <bool Symmetric>
struct Int4Tile {
    static constexpr int rows = 4;
    static constexpr int scale_rows = Symmetric ? 1 : 2;

    static void add_products(__m256i& pairs, __m256i w, const std::int8_t* x) {
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w, four_inputs(x)));
    }

    template <int T>
    [[gnu::noinline]] static void run(const MatmulWork& work, int block, int row, int h) {
        const long groups = (work.k + int4_block - 1) / int4_block;
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights) +
                        block * groups * int4_block / 2 * lanes + 32 * h;
        const std::uint16_t* scales = work.scales + block * groups * scale_rows * lanes + 8 * h;
        const std::int8_t* x = work.x_int8 + row * groups * int4_block;
        const __m256i ones = _mm256_set1_epi16(1);
        const __m256i nibble = _mm256_set1_epi8(15);
        StreamReader stream(work);
        __m256 sum[T] = {};
        for (long g = 0; g < groups; ++g) {
            __m256i pairs[T] = {};
            stream.fetch_lines<int4_block / 8>();
#pragma GCC unroll 2
            for (int j = 0; j < int4_block / 8; ++j) {
                const auto* at = w + (g * int4_block / 2 + 4 * j) * lanes;
                const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
                const __m256i first = _mm256_and_si256(both, nibble);
                const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const std::int8_t* eight = x + (t * groups + g) * int4_block + 8 * j;
                    add_products(pairs[t], first, eight);
                    add_products(pairs[t], second, eight + 4);
                }
            }
            const std::uint16_t* group_scales = scales + g * scale_rows * lanes;
            const __m256 scale = half_floats(group_scales);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const long at = (row + t) * groups + g;
                __m256i dot = _mm256_madd_epi16(pairs[t], ones);
                if constexpr (Symmetric) dot = _mm256_add_epi32(dot, _mm256_set1_epi32(work.x_start[at]));
                const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(work.x_scale[at]));
                sum[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sum[t]);
                if constexpr (!Symmetric) {
                    sum[t] = _mm256_fmadd_ps(half_floats(group_scales + lanes),
                                             _mm256_set1_ps(work.x_sum[at]), sum[t]);
                }
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_half(work, block, row + t, h, sum[t]);
    }
};

__m256 magnitude(__m256 a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

float horizontal_max(__m256 a) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

}  // namespace

void matmul_f32_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<F32Tile>::run(work, begin, end);
}

void matmul_bf16_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Bf16Tile>::run(work, begin, end);
}

void matmul_int8_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Halved<Int8Tile>>::run(work, begin, end);
}

void matmul_int4_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Halved<Int4Tile<false>>>::run(work, begin, end);
}

void matmul_int4_symmetric_avx2(const MatmulWork& work, int begin, int end) {
    TileWalk<Halved<Int4Tile<true>>>::run(work, begin, end);
}

namespace {

/// Quantises `Parts` times 8 values of one group to at most `most` in size; returns the scale.
template <int Parts>
float quantise_group(const float* x, int count, int max_quant, __m256i (&q)[Parts]) {
    // Below this the reciprocal would overflow; such a block adds nothing that f32 sums would keep.
    constexpr float smallest = 1e-30f;
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const auto part = [&](int v) {
        return _mm256_maskload_ps(x + 8 * v, _mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8 * v), index));
    };
    __m256 top = _mm256_setzero_ps();
    for (int v = 0; v < Parts; ++v) top = _mm256_max_ps(top, magnitude(part(v)));
    const float largest = horizontal_max(top);
    const auto limit = static_cast<float>(max_quant);
    const __m256 inverse = _mm256_set1_ps(largest > smallest ? limit / largest : 0.0f);
    for (int v = 0; v < Parts; ++v) q[v] = _mm256_cvtps_epi32(_mm256_mul_ps(part(v), inverse));
    return largest > smallest ? largest / limit : 0.0f;
}

/// Stores 32 values as bytes. The packs work within 128-bit halves; the permutation restores the order.
void store_bytes(const __m256i* q, std::int8_t* out) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

int horizontal_sum(__m256i a) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

}  // namespace

void matmul_quantise_avx2(const float* x, int k, std::int8_t* q, float* scale, std::int32_t*) {
    auto* out = reinterpret_cast<std::int16_t*>(q);
    for (int g = 0; g * quant_block < k; ++g, out += quant_block) {
        __m256i values[quant_block / 8];
        scale[g] = quantise_group(x + g * quant_block, k - g * quant_block, 127 << int8_low_bits, values);
        for (int v = 0; v < quant_block / 8; v += 2) {
            const __m256i packed = _mm256_packs_epi32(values[v], values[v + 1]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * v),
                                _mm256_permute4x64_epi64(packed, 0xd8));
        }
    }
}

void matmul_quantise_int4_avx2(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start,
                               float* sum) {
    for (int g = 0; g * int4_block < k; ++g, q += int4_block) {
        __m256i values[int4_block / 8];
        scale[g] = quantise_group(x + g * int4_block, k - g * int4_block, 127, values);
        store_bytes(values, q);
        const int total = horizontal_sum(
            _mm256_add_epi32(_mm256_add_epi32(values[0], values[1]), _mm256_add_epi32(values[2], values[3])));
        start[g] = -int4_offset * total;
        sum[g] = static_cast<float>(total) * scale[g];
    }
}

const MatmulKernels matmul_kernels_avx2 = {matmul_f32_avx2,      matmul_bf16_avx2,           matmul_int8_avx2,
                                           matmul_int4_avx2,     matmul_int4_symmetric_avx2, false,
                                           matmul_quantise_avx2, matmul_quantise_int4_avx2,  nullptr};

}  // namespace draftscope::kernels
