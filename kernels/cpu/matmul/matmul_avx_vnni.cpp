#include "kernels/cpu/matmul/matmul_avx2.h"
#include "kernels/cpu/matmul/matmul_avx2_common.h"

/// AVX-VNNI: vpdpbusd on 256 bits, for CPUs without AVX-512.
namespace draftscope::kernels {
namespace {

/// Int8VnniTile (matmul_int8_vnni.h) in halves of a block.
struct Int8Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 6;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        // One half of a single row has too few sums to hide their latency.
        if constexpr (T == 1) return part<T, halves>(work, block, row, 0);
        for_each_half(work, [&](int h) { part<T, 1>(work, block, row, h); });
    }

    /// `H` halves of the block, starting at half `first`.
    template <int T, int H>
    [[gnu::noinline]] static void part(const MatmulWork& work, int block, int row, int first) {
        const long groups = (work.k + quant_block - 1) / quant_block;
        const long padded = (work.k + int8_padding - 1) / int8_padding * int8_padding;
        const auto* w =
            reinterpret_cast<const std::int8_t*>(work.weights) + block * padded * lanes + 32 * first;
        const std::uint16_t* scales = work.scales + block * groups * lanes + 8 * first;
        const long width = groups * quant_block;
        const std::int8_t* x = work.x_int8 + row * 2 * width;
        const float* x_scale = work.x_scale + row * groups;
        const std::int32_t* x_start = work.x_start + row * groups;
        const __m256i offset = _mm256_set1_epi8(static_cast<char>(int8_offset));
        StreamReader stream(work);
        StridedPointers<2 * T> four(x, width);
        __m256 sum[T][H] = {};
        for (long g = 0; g < groups; ++g) {
            const long last = (g + 1) * quant_block < padded ? (g + 1) * quant_block : padded;
            __m256i high[T][H] = {};
            __m256i low[T][H];
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
                for (int h = 0; h < H; ++h) low[t][h] = _mm256_set1_epi32(x_start[t * groups + g]);
            }
            for_each_quad(
                stream, g * quant_block, last, [&](long i) __attribute__((always_inline)) {
                    const auto* at = reinterpret_cast<const __m256i*>(w + i * lanes);
                    __m256i wide[H];
#pragma GCC unroll 2
                    for (int h = 0; h < H; ++h) wide[h] = _mm256_xor_si256(_mm256_load_si256(at + h), offset);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t) {
                        const __m256i a = four_inputs(four[2 * t]);
                        const __m256i b = four_inputs(four[2 * t + 1]);
#pragma GCC unroll 2
                        for (int h = 0; h < H; ++h) {
                            high[t][h] = _mm256_dpbusd_avx_epi32(high[t][h], wide[h], a);
                            low[t][h] = _mm256_dpbusd_avx_epi32(low[t][h], wide[h], b);
                        }
                    }
                    four.advance(4);
                });
#pragma GCC unroll 2
            for (int h = 0; h < H; ++h) {
                const auto* group_scales = reinterpret_cast<const __m128i*>(scales + g * lanes + 8 * h);
                const __m256 w_scale = _mm256_castsi256_ps(
                    _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128(group_scales)), 16));
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const __m256i dot =
                        _mm256_add_epi32(_mm256_slli_epi32(high[t][h], int8_low_bits), low[t][h]);
                    const __m256 factor = _mm256_mul_ps(w_scale, _mm256_set1_ps(x_scale[t * groups + g]));
                    sum[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sum[t][h]);
                }
            }
            if constexpr (T > 3) asm volatile("" : "+m"(sum));  // the loop over inputs needs the registers
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
            for (int h = 0; h < H; ++h) store_half(work, block, row + t, first + h, sum[t][h]);
        }
    }
};

/// Int4VnniTile (matmul_int4_vnni.h) in halves of a block.
template <bool Symmetric>
struct Int4Tile {
    static constexpr int blocks = 1;
    static constexpr int rows = 8;
    static constexpr int scale_rows = Symmetric ? 1 : 2;

    template <int R, int T>
    static void run(const MatmulWork& work, int block, int row) {
        static_assert(R == 1);
        for_each_half(work, [&](int h) { half<T>(work, block, row, h); });
    }

    template <int T>
    [[gnu::noinline]] static void half(const MatmulWork& work, int block, int row, int h) {
        const long groups = (work.k + int4_block - 1) / int4_block;
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights) +
                        block * groups * int4_block / 2 * lanes + 32 * h;
        const std::uint16_t* scales = work.scales + block * groups * scale_rows * lanes + 8 * h;
        const std::int8_t* x = work.x_int8 + row * groups * int4_block;
        const __m256i nibble = _mm256_set1_epi8(15);
        StreamReader stream(work);
        __m256 sum[T] = {};
        // For few rows, two sums each, so that one instruction's products need not wait for the previous
        // ones.
        constexpr int chains = T <= 3 ? 2 : 1;
        for (long g = 0; g < groups; ++g) {
            __m256i dot[T][chains];
            stream.fetch_lines<int4_block / 8>();
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                dot[t][0] = _mm256_set1_epi32(Symmetric ? work.x_start[(row + t) * groups + g] : 0);
                if constexpr (chains == 2) dot[t][1] = _mm256_setzero_si256();
            }
#pragma GCC unroll 2
            for (int j = 0; j < int4_block / 8; ++j) {
                const auto* at = w + (g * int4_block / 2 + 4 * j) * lanes;
                const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
                const __m256i first = _mm256_and_si256(both, nibble);
                const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const std::int8_t* eight = x + (t * groups + g) * int4_block + 8 * j;
                    dot[t][0] = _mm256_dpbusd_avx_epi32(dot[t][0], first, four_inputs(eight));
                    dot[t][chains - 1] =
                        _mm256_dpbusd_avx_epi32(dot[t][chains - 1], second, four_inputs(eight + 4));
                }
            }
            const std::uint16_t* group_scales = scales + g * scale_rows * lanes;
            const __m256 scale = half_floats(group_scales);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const long at = (row + t) * groups + g;
                const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(work.x_scale[at]));
                if constexpr (chains == 2) dot[t][0] = _mm256_add_epi32(dot[t][0], dot[t][1]);
                sum[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t][0]), factor, sum[t]);
                if constexpr (!Symmetric)
                    sum[t] = _mm256_fmadd_ps(half_floats(group_scales + lanes),
                                             _mm256_set1_ps(work.x_sum[at]), sum[t]);
            }
            if constexpr (T > 4) asm volatile("" : "+m"(sum));  // the loop over inputs needs the registers
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) store_half(work, block, row + t, h, sum[t]);
    }
};

/// Quantises one row for int8 weights, with separate high and low halves as on the other dot-product paths.
void quantise_row(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start) {
    const int groups = (k + quant_block - 1) / quant_block;
    for (int g = 0; g < groups; ++g, q += quant_block) {
        const int left = k - g * quant_block;
        alignas(32) std::int16_t values[quant_block];
        matmul_quantise_avx2(x + g * quant_block, left < quant_block ? left : quant_block,
                             reinterpret_cast<std::int8_t*>(values), scale + g, nullptr);
        int sum = 0;
        for (int i = 0; i < quant_block; ++i) {
            const int high = (values[i] + (1 << (int8_low_bits - 1))) >> int8_low_bits;
            q[i] = static_cast<std::int8_t>(high);
            q[groups * quant_block + i] = static_cast<std::int8_t>(values[i] - high * (1 << int8_low_bits));
            sum += values[i];
        }
        start[g] = -int8_offset * sum;
    }
}

}  // namespace

const MatmulKernels matmul_kernels_avx_vnni = {matmul_f32_avx2,
                                               matmul_bf16_avx2,
                                               TileWalk<Int8Tile>::run,
                                               TileWalk<Int4Tile<false>>::run,
                                               TileWalk<Int4Tile<true>>::run,
                                               false,
                                               quantise_row,
                                               matmul_quantise_int4_avx2,
                                               nullptr};

}  // namespace draftscope::kernels
