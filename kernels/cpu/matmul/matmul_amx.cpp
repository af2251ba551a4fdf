#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/cpu/matmul/gathered.h"
#include "kernels/cpu/matmul/matmul_bf16_pairs.h"
#include "kernels/cpu/matmul/matmul_int4_vnni.h"
#include "kernels/cpu/matmul/matmul_int8_vnni.h"
#include "kernels/cpu/matmul/threshold_matmul.h"

/// AMX kernels. One tile instruction multiplies up to 16 rows of activations with 16 outputs over 64 bytes of
/// inputs. It costs nearly the same for 2 rows as for 16.
namespace draftscope::kernels {
namespace {

inline void prefetch_tile(const std::int8_t* at) {
#pragma GCC unroll 16
    for (int line = 0; line < tile_bytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at) + line, _MM_HINT_T0);
    }
}

/// Prefetches for one tile; `bytes` of weights remain from the tile on.
inline void fetch_tile(StreamReader& stream, long bytes) {
    if (bytes >= tile_bytes) {
        stream.fetch_lines<tile_bytes / 64>();
    } else {
        for (long line = 0; line < bytes; line += 64) stream.fetch_line();
    }
}

/// Exact sums in the layout of a stored tile: [row][output].
using Dots = std::int32_t[tile_rows][lanes];

/// tilestored of tile `Tile`. GCC's intrinsic clobbers all memory, which would spill the sums from registers.
template <int Tile>
inline void store_dots(Dots& dots) {
#if defined(__clang__)
    _tile_stored(Tile, dots, row_bytes);
#else
    asm volatile("tilestored %%tmm%c3, (%1,%2,1)" : "=m"(dots) : "r"(&dots), "r"(long{row_bytes}), "i"(Tile));
#endif
}

/// Loops over blocks and rows: `Kernel::run<T>` computes blocks [begin, end) of outputs for T rows, up to
/// tile_rows. Below Kernel::min_amx_rows rows, vpdpbusd (Kernel::Narrow) is faster.
template <typename Kernel>
struct AmxWalk {
    template <int T>
    static void run_rows(const MatmulWork& work, int begin, int end, int row, int count) {
        if (count == T) {
            Kernel::template run<T>(work, begin, end, row);
        } else if constexpr (T > 1) {
            run_rows<T - 1>(work, begin, end, row, count);
        }
    }

    static void blocks(const MatmulWork& work, int begin, int end) {
        if (work.rows < Kernel::min_amx_rows) return TileWalk<typename Kernel::Narrow>::run(work, begin, end);
        const TileConfig config = Kernel::config(work.rows < tile_rows ? work.rows : tile_rows, work.k);
        const TileScope scope(config);
        // Rows beyond one tile use each block again while it is in cache.
        const int step = work.rows > tile_rows ? 1 : end - begin;
        for (int block = begin; block < end; block += step) {
            for (int row = 0; row < work.rows; row += tile_rows) {
                const int left = work.rows - row;
                run_rows<tile_rows>(work, block, block + step, row, left < tile_rows ? left : tile_rows);
            }
        }
    }
};

/// int8. A tile holds the high and low halves of 8 rows as 16 rows and yields the exact sums of one group of
/// inputs. They are combined and scaled into the f32 sum as in Int8VnniTile, so both give the same bits.
struct Int8Amx {
    using Narrow = Int8VnniTile;
    static constexpr int min_amx_rows = 3;
    static constexpr int half = tile_rows / 2;  ///< rows of activations per tile
    static constexpr int tiles_ahead = 5;  ///< prefetch distance of weights; one stream hides memory latency
    static constexpr int dots_ahead = 1;   ///< groups between a tile product and the use of its sums
    static constexpr int slots = 2;        ///< power of two above dots_ahead

    /// Tiles 0 and 1: sums of rows 0 to 7 and 8 to 15; tiles 2 and 3: their activations; tile 4: weights;
    /// tiles 5 to 7: like 2 to 4. For a matrix of one group of inputs, tiles have only as many columns as
    /// needed.
    static TileConfig config(int rows, int k) {
        TileConfig tiles;
        const int first = 2 * (rows < half ? rows : half), second = 2 * rows - first;
        tiles.set(0, first, row_bytes);
        if (second > 0) tiles.set(1, second, row_bytes);
        for (int inputs = 2; inputs <= 5; inputs += 3) {
            const int fours = k > quant_block ? tile_rows : num_quads(k, inputs == 2 ? 0 : 1);
            if (fours == 0) break;
            tiles.set(inputs, first, 4 * fours);
            if (second > 0) tiles.set(inputs + 1, second, 4 * fours);
            tiles.set(inputs + 2, fours, row_bytes);
        }
        return tiles;
    }
    /// Number of groups of four inputs in the first or second tile of one group, at most a full tile's.
    static int num_quads(int k, int tile) {
        const int left = (k - tile * tile_inputs + 3) / 4;
        return left < 0 ? 0 : left < tile_rows ? left : tile_rows;
    }

    template <int T>
    [[gnu::always_inline]] static void add(const Dots (&dots)[2], __m512 w_scale, const float* x_scale,
                                           long x_stride, __m512 (&sum)[T]) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const __m512i high = _mm512_load_si512(dots[t / half][2 * (t % half)]);
            const __m512i low = _mm512_load_si512(dots[t / half][2 * (t % half) + 1]);
            const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, int8_low_bits), low);
            const __m512 factor = _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scale[t * x_stride]));
            sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, sum[t]);
        }
    }

    /// Multiplies 64 inputs. Adjacent calls alternate tiles, because a load waits for the product before it.
    template <int T, bool Second>
    [[gnu::always_inline]] static void multiply(const std::int8_t* w, const std::int8_t* x, long width,
                                                StreamReader* stream, long left) {
        if (stream != nullptr) {
            fetch_tile(*stream, left);
        } else {
            prefetch_tile(w + tiles_ahead * tile_bytes);
        }
        const std::int8_t* lower = x + 2 * half * width;
        if constexpr (Second) {
            _tile_loadd(7, w, row_bytes);
            _tile_loadd(5, x, width);
            _tile_dpbssd(0, 5, 7);
            if constexpr (T <= half) return;
            _tile_loadd(6, lower, width);
            _tile_dpbssd(1, 6, 7);
        } else {
            _tile_loadd(4, w, row_bytes);
            _tile_loadd(2, x, width);
            _tile_dpbssd(0, 2, 4);
            if constexpr (T <= half) return;
            _tile_loadd(3, lower, width);
            _tile_dpbssd(1, 3, 4);
        }
    }

    /// For a matrix of one group: the activations' tiles stay loaded.
    template <int T>
    static void one_group(const MatmulWork& work, int begin, int end, int row) {
        const long stride = (work.k + int8_padding - 1) / int8_padding * int8_padding * lanes;
        const auto* w = reinterpret_cast<const std::int8_t*>(work.weights) + begin * stride;
        const std::uint16_t* scales = work.scales + begin * lanes;
        const std::int8_t* x = work.x_int8 + row * 2 * quant_block;
        const std::int8_t* lower = x + 2 * half * quant_block;
        const bool second = work.k > tile_inputs;
        _tile_loadd(2, x, quant_block);
        if constexpr (T > half) _tile_loadd(3, lower, quant_block);
        if (second) {
            _tile_loadd(5, x + tile_inputs, quant_block);
            if constexpr (T > half) _tile_loadd(6, lower + tile_inputs, quant_block);
        }
        alignas(64) Dots dots[slots][2];
        for (int block = begin; block < end + dots_ahead; ++block, w += stride) {
            if (block < end) {
                for (long line = 0; line < stride; line += 64)
                    _mm_prefetch(reinterpret_cast<const char*>(w) + tiles_ahead * tile_bytes + line,
                                 _MM_HINT_T0);
                _tile_zero(0);
                if constexpr (T > half) _tile_zero(1);
                _tile_loadd(4, w, row_bytes);
                _tile_dpbssd(0, 2, 4);
                if constexpr (T > half) _tile_dpbssd(1, 3, 4);
                if (second) {
                    _tile_loadd(7, w + tile_bytes, row_bytes);
                    _tile_dpbssd(0, 5, 7);
                    if constexpr (T > half) _tile_dpbssd(1, 6, 7);
                }
            }
            if (block >= begin + dots_ahead) {
                __m512 sum[T];
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) sum[t] = _mm512_setzero_ps();
                add<T>(dots[(block - dots_ahead) % slots], load_scales(scales), work.x_scale + row, 1, sum);
                scales += lanes;
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) store_tile_row(work, block - dots_ahead, row + t, sum[t]);
            }
            if (block == end) break;
            store_dots<0>(dots[block % slots][0]);
            if constexpr (T > half) store_dots<1>(dots[block % slots][1]);
        }
    }

    /// Processes the groups of all blocks as one sequence, so that other work fills the time between a tile
    /// product and the use of its sums.
    template <int T>
    static void run(const MatmulWork& work, int begin, int end, int row) {
        if (work.k <= quant_block) return one_group<T>(work, begin, end, row);
        const long groups = (work.k + quant_block - 1) / quant_block;
        const long stride = (work.k + int8_padding - 1) / int8_padding * int8_padding * lanes;
        const auto* w = reinterpret_cast<const std::int8_t*>(work.weights) + begin * stride;
        const std::uint16_t* scales = work.scales + begin * groups * lanes;
        const long width = groups * quant_block;
        const std::int8_t* x = work.x_int8 + row * 2 * width;
        const float* x_scale = work.x_scale + row * groups;
        const long items = (end - begin) * groups;
        StreamReader stream(work);
        StreamReader* const ahead = work.stream != nullptr && work.rows <= tile_rows ? &stream : nullptr;
        alignas(64) Dots dots[slots][2];
        __m512 sum[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sum[t] = _mm512_setzero_ps();
        long g = 0, ready = 0;
        int block = begin;
        for (long item = 0; item < items + dots_ahead; ++item) {
            if (item < items) {
                _tile_zero(0);
                if constexpr (T > half) _tile_zero(1);
                const std::int8_t* at = w + g * quant_block * lanes;
                const long left = stride - g * quant_block * lanes;
                multiply<T, false>(at, x + g * quant_block, width, ahead, left);
                if (g * quant_block + tile_inputs < work.k)
                    multiply<T, true>(at + tile_bytes, x + g * quant_block + tile_inputs, width, ahead,
                                      left - tile_bytes);
                store_dots<0>(dots[item % slots][0]);
                if constexpr (T > half) store_dots<1>(dots[item % slots][1]);
                if (++g == groups) {
                    g = 0;
                    w += stride;
                }
            }
            if (item < dots_ahead) continue;
            add<T>(dots[(item - dots_ahead) % slots], load_scales(scales), x_scale + ready, groups, sum);
            scales += lanes;
            if (++ready < groups) continue;
            ready = 0;
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                store_tile_row(work, block, row + t, sum[t]);
                sum[t] = _mm512_setzero_ps();
            }
            ++block;
        }
    }
};

/// int4, like Int4VnniTile. A tile takes one group of 32 inputs, whose nibbles are unpacked to bytes; 8 is
/// subtracted from those of symmetric weights.
template <bool Symmetric>
struct Int4Amx {
    using Narrow = Int4VnniTile<Symmetric>;
    static constexpr int min_amx_rows = 9;
    static constexpr int unpacked_ahead = 2;  ///< groups between unpacking and the tile load
    static constexpr int dots_ahead = 2;      ///< groups between a tile product and the use of its sums
    static constexpr int slots = 4;           ///< power of two above both
    static constexpr int scale_rows = Narrow::scale_rows;
    static constexpr int group_bytes = int4_block * lanes;
    static constexpr int packed_bytes = group_bytes / 2;

    /// Tile 0: sums of T rows; tile 2: activations; tile 3: weights.
    static TileConfig config(int rows, int) {
        TileConfig tiles;
        tiles.set(0, rows, row_bytes);
        tiles.set(2, rows, int4_block);
        tiles.set(3, int4_block / 4, row_bytes);
        return tiles;
    }

    /// Unpacks one group of a block to the order of int8 weights: row r of the tile is inputs 4 r to 4 r + 3.
    static void unpack(const std::uint8_t* w, std::uint8_t* out) {
        const __m512i low = _mm512_set1_epi8(15);
        const __m512i offset = _mm512_set1_epi8(Symmetric ? int4_offset : 0);
#pragma GCC unroll 4
        for (int j = 0; j < int4_block / 8; ++j) {
            const __m512i both = _mm512_load_si512(w + j * 64);
            const __m512i first = _mm512_and_si512(both, low);
            const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
            _mm512_store_si512(out + 2 * j * 64, _mm512_sub_epi8(first, offset));
            _mm512_store_si512(out + (2 * j + 1) * 64, _mm512_sub_epi8(second, offset));
        }
    }

    template <int T>
    [[gnu::always_inline]] static void add(const Dots& dots, const std::uint16_t* scales,
                                           const float* x_scale, const float* x_sum, long groups,
                                           __m512 (&sum)[T]) {
        const __m512 scale = half_floats(scales);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[t * groups]));
            sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots[t])), factor, sum[t]);
        }
        if constexpr (!Symmetric) {
            const __m512 minimum = half_floats(scales + lanes);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t)
                sum[t] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_sum[t * groups]), sum[t]);
        }
    }

    /// Processes the groups of all blocks as one sequence, as Int8Amx does.
    template <int T>
    static void run(const MatmulWork& work, int begin, int end, int row) {
        const long groups = (work.k + int4_block - 1) / int4_block;
        const long items = (end - begin) * groups;
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights) + begin * groups * packed_bytes;
        const std::uint16_t* scales = work.scales + begin * groups * scale_rows * lanes;
        const std::int8_t* x = work.x_int8 + row * groups * int4_block;
        const float* x_scale = work.x_scale + row * groups;
        const float* x_sum = work.x_sum + row * groups;
        StreamReader stream(work);
        alignas(64) std::uint8_t bytes[slots][group_bytes];
        alignas(64) Dots dots[slots];
        __m512 sum[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sum[t] = _mm512_setzero_ps();
        for (long item = 0; item < unpacked_ahead && item < items; ++item)
            unpack(w + item * packed_bytes, bytes[item]);
        long g = 0, ready = 0;
        int block = begin;
        for (long item = 0; item < items + dots_ahead; ++item) {
            if (item < items) {
                const long next = item + unpacked_ahead;
                if (next < items) unpack(w + next * packed_bytes, bytes[next % slots]);
                if (work.rows <= tile_rows) stream.fetch_lines<packed_bytes / 64>();
                asm volatile("" : : "m"(bytes));  // stored before the tile load reads it
                _tile_loadd(2, x + g * int4_block, groups * int4_block);
                _tile_loadd(3, bytes[item % slots], row_bytes);
                _tile_zero(0);
                _tile_dpbssd(0, 2, 3);
                store_dots<0>(dots[item % slots]);
                if (++g == groups) g = 0;
            }
            if (item < dots_ahead) continue;
            __builtin_prefetch(scales + Narrow::scales_ahead, 0, 2);
            add<T>(dots[(item - dots_ahead) % slots], scales, x_scale + ready, x_sum + ready, groups, sum);
            scales += scale_rows * lanes;
            if (++ready < groups) continue;
            ready = 0;
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                store_tile_row(work, block, row + t, sum[t]);
                sum[t] = _mm512_setzero_ps();
            }
            ++block;
        }
    }
};

/// bf16 weights and activations. Every M uses this path: a tile sums even and odd inputs of its 32
/// separately, and no vector instruction does the same.
struct Bf16Amx {
    static constexpr int wide = 4;  ///< blocks of outputs at once, because sums of a tile have a latency of
                                    ///< 52 cycles
    static constexpr int chunk = 32;
    using Sums = float[tile_rows][lanes];

    /// Tiles 0 .. 3: sums; tile 4: activations; tile 5: weights; tiles 6 and 7: like 4 and 5 for the last,
    /// shorter chunk.
    static TileConfig config(const MatmulWork& work) {
        TileConfig tiles;
        const int height = work.rows < tile_rows ? work.rows : tile_rows;
        for (int r = 0; r < wide; ++r) tiles.set(r, height, row_bytes);
        tiles.set(4, height, row_bytes);
        tiles.set(5, tile_rows, row_bytes);
        const int left = (work.k % chunk + 1) / 2;
        if (left > 0) {
            tiles.set(6, height, left * 4);
            tiles.set(7, left, row_bytes);
        }
        return tiles;
    }

    template <int R>
    static void clear() {
        _tile_zero(0);
        if constexpr (R > 1) _tile_zero(1);
        if constexpr (R > 2) _tile_zero(2);
        if constexpr (R > 3) _tile_zero(3);
    }

    template <int R>
    static void multiply(const std::uint32_t* w, long stride, const std::uint32_t* x, long x_stride,
                         StreamReader& stream) {
        const auto next = [&](const std::uint32_t* at) {
            if constexpr (R == 1) return fetch_tile(stream, tile_bytes);
            prefetch_tile(reinterpret_cast<const std::int8_t*>(at) + tile_bytes);
        };
        _tile_loadd(4, x, x_stride);
        next(w);
        _tile_loadd(5, w, row_bytes);
        _tile_dpbf16ps(0, 4, 5);
        if constexpr (R > 1) {
            next(w + stride);
            _tile_loadd(5, w + stride, row_bytes);
            _tile_dpbf16ps(1, 4, 5);
        }
        if constexpr (R > 2) {
            next(w + 2 * stride);
            _tile_loadd(5, w + 2 * stride, row_bytes);
            _tile_dpbf16ps(2, 4, 5);
        }
        if constexpr (R > 3) {
            next(w + 3 * stride);
            _tile_loadd(5, w + 3 * stride, row_bytes);
            _tile_dpbf16ps(3, 4, 5);
        }
    }

    template <int R>
    static void multiply_rest(const std::uint32_t* w, long stride, const std::uint32_t* x, long x_stride) {
        _tile_loadd(6, x, x_stride);
        _tile_loadd(7, w, row_bytes);
        _tile_dpbf16ps(0, 6, 7);
        if constexpr (R > 1) {
            _tile_loadd(7, w + stride, row_bytes);
            _tile_dpbf16ps(1, 6, 7);
        }
        if constexpr (R > 2) {
            _tile_loadd(7, w + 2 * stride, row_bytes);
            _tile_dpbf16ps(2, 6, 7);
        }
        if constexpr (R > 3) {
            _tile_loadd(7, w + 3 * stride, row_bytes);
            _tile_dpbf16ps(3, 6, 7);
        }
    }

    template <int R>
    static void store(Sums (&sums)[wide]) {
        _tile_stored(0, sums[0], row_bytes);
        if constexpr (R > 1) _tile_stored(1, sums[1], row_bytes);
        if constexpr (R > 2) _tile_stored(2, sums[2], row_bytes);
        if constexpr (R > 3) _tile_stored(3, sums[3], row_bytes);
    }

    template <int R>
    static void run(const MatmulWork& work, int block) {
        const long pairs = (work.k + 1) / 2;
        const long stride = pairs * lanes;
        const std::uint32_t* w = reinterpret_cast<const std::uint32_t*>(work.weights) + block * stride;
        const long full_chunks = work.k / chunk;
        StreamReader stream(work);
        for (int row = 0; row < work.rows; row += tile_rows) {
            const std::uint32_t* x = work.x_bf16 + row * pairs;
            clear<R>();
            for (long c = 0; c < full_chunks; ++c) {
                multiply<R>(w + c * (chunk / 2) * lanes, stride, x + c * (chunk / 2), pairs * 4, stream);
            }
            if (work.k % chunk != 0) {
                if constexpr (R == 1) fetch_tile(stream, (pairs - full_chunks * (chunk / 2)) * row_bytes);
                multiply_rest<R>(w + full_chunks * (chunk / 2) * lanes, stride, x + full_chunks * (chunk / 2),
                                 pairs * 4);
            }
            alignas(64) Sums sums[wide];
            store<R>(sums);
            const int height = work.rows - row < tile_rows ? work.rows - row : tile_rows;
            for (int r = 0; r < R; ++r) {
                for (int t = 0; t < height; ++t) {
                    store_tile_row(work, block + r, row + t, _mm512_load_ps(sums[r][t]));
                }
            }
        }
    }

    static void blocks(const MatmulWork& work, int begin, int end) {
        const TileConfig tiles = config(work);
        const TileScope scope(tiles);
        int block = begin;
        if (work.stream != nullptr && work.rows <= tile_rows) {
            for (; block < end; ++block) run<1>(work, block);
            return;
        }
        for (; block + wide <= end; block += wide) run<wide>(work, block);
        if (end - block == 3) return run<3>(work, block);
        if (end - block == 2) return run<2>(work, block);
        if (end - block == 1) return run<1>(work, block);
    }
};

}  // namespace

const MatmulKernels matmul_kernels_amx = {TileWalk<F32Tile>::run,
                                          Bf16Amx::blocks,
                                          AmxWalk<Int8Amx>::blocks,
                                          AmxWalk<Int4Amx<false>>::blocks,
                                          AmxWalk<Int4Amx<true>>::blocks,
                                          true,
                                          quantise_row,
                                          quantise_row_int4,
                                          to_bf16_pairs,
                                          &gathered_int8_amx,
                                          &gathered_bf16_amx,
                                          threshold_matmul_int8_amx,
                                          threshold_matmul_bf16_amx};

}  // namespace draftscope::kernels
