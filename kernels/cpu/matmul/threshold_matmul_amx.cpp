#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/cpu/matmul/matmul_avx512_common.h"
#include "kernels/cpu/matmul/threshold_matmul.h"

/// With few inputs, a block of outputs takes few tile instructions, and processing the sums dominates. Sums
/// go from the tile through two registers to a row's list, or are dropped.
///
/// Measured on 2026-11-22 on 2 cores of an Intel Xeon with AMX, int8, one call of one row and three of four.
/// With this file, gathered_amx.cpp and a faster selection, SpecVocab's head took 1,143 us instead of
/// 2,030 on two threads, and 1,656 instead of 2,591 on one.
namespace draftscope::kernels {
namespace {

constexpr long far_ahead = 16 << 10, near_ahead = 1 << 10;  ///< prefetch distances in bytes

/// For each line of `bytes` of weights in use, prefetches one line from memory into L2 and one from L2 into
/// L1.
inline void fetch_ahead(const std::byte* at, long bytes) {
    for (long line = 0; line < bytes; line += row_bytes) {
        _mm_prefetch(reinterpret_cast<const char*>(at + far_ahead + line), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(at + near_ahead + line), _MM_HINT_T0);
    }
}

/// Stores a tile into 16 rows. GCC's intrinsic clobbers all memory.
template <int Tile, typename Sum>
inline void store_sums(Sum (&first)[lanes]) {
    using Sums = Sum[tile_rows][lanes];
    auto& sums = *reinterpret_cast<Sums*>(&first);
#if defined(__clang__)
    _tile_stored(Tile, &sums, row_bytes);
#else
    asm volatile("tilestored %%tmm%c3, (%1,%2,1)" : "=m"(sums) : "r"(&sums), "r"(long{row_bytes}), "i"(Tile));
#endif
}

/// Keeps those of 16 sums above the row's bound. Up to 16 entries after the list may be written; usually few
/// are, since stores across a cache line cost twice.
inline void keep(ThresholdedRow& row, __m512 sums, __m512i indices, __mmask16 real) {
    constexpr int few = 4;
    const __mmask16 above = _mm512_mask_cmp_ps_mask(real, sums, _mm512_set1_ps(row.bound), _CMP_GT_OQ);
    const __m512 values = _mm512_maskz_compress_ps(above, sums);
    const __m512i numbers = _mm512_maskz_compress_epi32(above, indices);
    const int count = __builtin_popcount(above);
    _mm_storeu_ps(row.values + row.count, _mm512_castps512_ps128(values));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row.indices + row.count), _mm512_castsi512_si128(numbers));
    if (__builtin_expect(count > few, 0)) {
        _mm512_storeu_ps(row.values + row.count, values);
        _mm512_storeu_si512(row.indices + row.count, numbers);
    }
    row.count += count;
}

inline __mmask16 real_lanes(const MatmulWork& work, int block) {
    const int left = work.n - block * lanes;
    return static_cast<__mmask16>(left >= lanes ? 0xffffu : (1u << left) - 1u);
}
inline __m512i output_indices(int first, int block) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lane, _mm512_set1_epi32(first + block * lanes));
}

/// int8 of one group of inputs, as in matmul_amx.cpp: a tile holds the high and low halves of 8 rows. Tiles 0
/// and 1: sums of rows 0 to 7 and 8 to 15. Tiles 2 and 3: their activations of the first 64 inputs; tiles 4
/// and 5: those of the others. Tiles 6 and 7: the weights of both.
struct Int8 {
    static constexpr int height = tile_rows;  ///< rows of activations at once
    static constexpr int half = tile_rows / 2;

    static TileConfig config(int rows, int k) {
        TileConfig tiles;
        const int first = 2 * (rows < half ? rows : half), second = 2 * rows - first;
        tiles.set(0, first, row_bytes);
        if (second > 0) tiles.set(1, second, row_bytes);
        for (int part = 0; part * tile_inputs < k; ++part) {
            const int left = (k - part * tile_inputs + 3) / 4, fours = left < tile_rows ? left : tile_rows;
            tiles.set(2 + 2 * part, first, 4 * fours);
            if (second > 0) tiles.set(3 + 2 * part, second, 4 * fours);
            tiles.set(6 + part, fours, row_bytes);
        }
        return tiles;
    }

    static void run(const MatmulWork& work, int begin, int end, int first, int row, int rows,
                    ThresholdedRow* out) {
        const std::int8_t* x = work.x_int8 + row * 2 * quant_block;
        const std::int8_t* lower = x + 2 * half * quant_block;
        const bool wide = work.k > tile_inputs;
        _tile_loadd(2, x, quant_block);
        if (wide) _tile_loadd(4, x + tile_inputs, quant_block);
        if (rows <= half) return run_blocks<false>(work, begin, end, first, row, rows, out);
        _tile_loadd(3, lower, quant_block);
        if (wide) _tile_loadd(5, lower + tile_inputs, quant_block);
        run_blocks<true>(work, begin, end, first, row, rows, out);
    }

    template <bool Lower>
    static void run_blocks(const MatmulWork& work, int begin, int end, int first, int row, int rows,
                           ThresholdedRow* out) {
        const long stride = (work.k + int8_padding - 1) / int8_padding * int8_padding * lanes;
        const std::byte* w = work.weights + begin * stride;
        // The sums of a block are processed while the next block's tiles are computed.
        alignas(64) std::int32_t sums[2][2 * tile_rows][lanes];
        for (int block = begin; block <= end; ++block, w += stride) {
            if (block < end) {
                fetch_ahead(w, stride);
                _tile_zero(0);
                if constexpr (Lower) _tile_zero(1);
                _tile_loadd(6, w, row_bytes);
                _tile_dpbssd(0, 2, 6);
                if constexpr (Lower) _tile_dpbssd(1, 3, 6);
                if (work.k > tile_inputs) {
                    _tile_loadd(7, w + tile_bytes, row_bytes);
                    _tile_dpbssd(0, 4, 7);
                    if constexpr (Lower) _tile_dpbssd(1, 5, 7);
                }
            }
            if (block > begin) {
                const int ready = block - 1;
                const __m512 scale = load_scales(work.scales + ready * lanes);
                const __m512i indices = output_indices(first, ready);
                const __mmask16 real = real_lanes(work, ready);
                for (int t = 0; t < rows; ++t) {
                    const __m512i high = _mm512_load_si512(sums[ready % 2][2 * t]);
                    const __m512i low = _mm512_load_si512(sums[ready % 2][2 * t + 1]);
                    const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, int8_low_bits), low);
                    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(work.x_scale[row + t]));
                    keep(out[t], _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, _mm512_setzero_ps()),
                         indices, real);
                }
            }
            if (block == end) break;
            store_sums<0>(sums[block % 2][0]);
            if constexpr (Lower) store_sums<1>(sums[block % 2][tile_rows]);
        }
    }
};

/// bf16. Tile 0: sums; tile 1: activations; tile 2: weights; tiles 3 and 4: activations and weights of the
/// last, shorter chunk of inputs.
struct half_t {
    static constexpr int height = tile_rows;
    static constexpr int chunk = 32;

    static TileConfig config(int rows, int k) {
        TileConfig tiles;
        tiles.set(0, rows, row_bytes);
        tiles.set(1, rows, row_bytes);
        tiles.set(2, tile_rows, row_bytes);
        const int left = (k % chunk + 1) / 2;
        if (left > 0) {
            tiles.set(3, rows, left * 4);
            tiles.set(4, left, row_bytes);
        }
        return tiles;
    }

    static void run(const MatmulWork& work, int begin, int end, int first, int row, int rows,
                    ThresholdedRow* out) {
        const long pairs = (work.k + 1) / 2, full_chunks = work.k / chunk;
        const long stride = pairs * row_bytes, chunk_bytes = chunk / 2 * row_bytes;
        const std::byte* w = work.weights + begin * stride;
        const std::uint32_t* x = work.x_bf16 + row * pairs;
        alignas(64) float sums[2][tile_rows][lanes];
        for (int block = begin; block <= end; ++block, w += stride) {
            if (block < end) {
                fetch_ahead(w, stride);
                _tile_zero(0);
                for (long c = 0; c < full_chunks; ++c) {
                    _tile_loadd(1, x + c * (chunk / 2), pairs * 4);
                    _tile_loadd(2, w + c * chunk_bytes, row_bytes);
                    _tile_dpbf16ps(0, 1, 2);
                }
                if (work.k % chunk != 0) {
                    _tile_loadd(3, x + full_chunks * (chunk / 2), pairs * 4);
                    _tile_loadd(4, w + full_chunks * chunk_bytes, row_bytes);
                    _tile_dpbf16ps(0, 3, 4);
                }
            }
            if (block > begin) {
                const int ready = block - 1;
                const __m512i indices = output_indices(first, ready);
                const __mmask16 real = real_lanes(work, ready);
                for (int t = 0; t < rows; ++t)
                    keep(out[t], _mm512_load_ps(sums[ready % 2][t]), indices, real);
            }
            if (block < end) store_sums<0>(sums[block % 2][0]);
        }
    }
};

template <typename Product>
void run_threshold_matmul(const MatmulWork& work, int begin, int end, int first, ThresholdedRow* rows) {
    for (int row = 0; row < work.rows; row += Product::height) {
        const int left = work.rows - row, count = left < Product::height ? left : Product::height;
        const TileConfig config = Product::config(count, work.k);
        const TileScope scope(config);
        Product::run(work, begin, end, first, row, count, rows + row);
    }
}

}  // namespace

void threshold_matmul_int8_amx(const MatmulWork& work, int begin, int end, int first, ThresholdedRow* rows) {
    run_threshold_matmul<Int8>(work, begin, end, first, rows);
}
void threshold_matmul_bf16_amx(const MatmulWork& work, int begin, int end, int first, ThresholdedRow* rows) {
    run_threshold_matmul<half_t>(work, begin, end, first, rows);
}

}  // namespace draftscope::kernels
