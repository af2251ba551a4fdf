#include <cstring>

#include "base/numel.h"
#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/cpu/matmul/gathered.h"
#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/matmul/tile.h"

/// The weights are the left operand of the tile product: its rows are 16 stored rows in their original order.
/// Packed weights would need a transposition; here the activations are transposed instead, as they are few
/// and shared by all rows. While a block's tiles are multiplied, the next block's rows are copied together
/// and later rows are prefetched line by line, so that memory reads never pause.
///
/// Measured on 2026-11-22 on 2 cores of an Intel Xeon with AMX, int8, one call of one row and three of four.
/// With this file, threshold_matmul_amx.cpp and a faster selection, SpecVocab's head took 1,143 us instead of
/// 2,030 on two threads, and 1,656 instead of 2,591 on one.
namespace draftscope::kernels {
namespace {

constexpr int x_rows = 8;  ///< rows of activations per tile
constexpr int line = 64;
constexpr int tile_stride = tile_rows * line;  ///< bytes of one line of 16 rows, contiguous

/// Tile columns for `rows` rows of activations: a power of two.
int num_tile_columns(int rows) {
    int columns = 1;
    while (columns < rows && columns < x_rows) columns *= 2;
    return columns;
}
int groups_of_rows(int rows) {
    return (rows + x_rows - 1) / x_rows;
}
long num_chunks(int k, int chunk) {
    return (k + chunk - 1) / chunk;
}
long scale_groups(int k) {
    return num_chunks(k, quant_block);
}

/// State of copying 16 rows from the store to a scratch buffer; line l of row r goes to l * tile_stride + r *
/// line.
struct Move {
    const std::byte* from[tile_rows];
    const std::byte* ahead[tile_rows];
    std::byte* to;
    bool fetch;

    [[gnu::always_inline]] void operator()(long l) const {
        std::byte* out = to + l * tile_stride;
#pragma GCC unroll 16
        for (int r = 0; r < tile_rows; ++r)
            _mm512_store_si512(out + r * line, _mm512_load_si512(from[r] + l * line));
        if (!fetch) return;
#pragma GCC unroll 16
        for (int r = 0; r < tile_rows; ++r)
            _mm_prefetch(reinterpret_cast<const char*>(ahead[r] + l * line), _MM_HINT_T1);
    }
};

const std::byte* row_address(const GatheredWork& work, int index) {
    return work.store + numel(work.ids[index], work.row_bytes);
}

/// Starts copying block `block`. Lanes past the last id repeat it; their outputs are not stored.
void start_move(const GatheredWork& work, int block, int last, std::byte* to, Move& move) {
    move.to = to;
    const int first = block * lanes;
    move.fetch = first + work.rows_ahead < last;
    for (int r = 0; r < tile_rows; ++r) {
        const int at = first + r, then = at + work.rows_ahead;
        move.from[r] = row_address(work, at < last ? at : last - 1);
        move.ahead[r] = row_address(work, then < last ? then : last - 1);
    }
}

/// Splits pairs of vectors into even and odd lanes until each holds one row of activations, then stores them.
template <int N>
[[gnu::always_inline]] inline void store_rows(const __m512 (&v)[N], int row, int step, int rows, float* y,
                                              std::int64_t stride, __mmask16 mask) {
    if constexpr (N == 1) {
        if (row < rows) _mm512_mask_storeu_ps(y + row * stride, mask, v[0]);
    } else {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        __m512 first[N / 2], second[N / 2];
#pragma GCC unroll 4
        for (int i = 0; i < N / 2; ++i) {
            first[i] = _mm512_permutex2var_ps(v[2 * i], even, v[2 * i + 1]);
            second[i] = _mm512_permutex2var_ps(v[2 * i], odd, v[2 * i + 1]);
        }
        store_rows(first, row, 2 * step, rows, y, stride, mask);
        store_rows(second, row + step, 2 * step, rows, y, stride, mask);
    }
}

/// Runs blocks [begin, end). `Product<P>::block` multiplies 16 contiguous rows with up to P rows of
/// activations and calls `move` once per line of them.
template <typename Product, int P>
void run_blocks(const GatheredWork& work, int begin, int end) {
    const TileConfig config = Product::template config<P>(work.k);
    const TileScope scope(config);
    const long lines = static_cast<long>(work.row_bytes / line);
    std::byte* buffers[2] = {work.scratch, work.scratch + lines * tile_stride};
    std::byte* rest = buffers[1] + lines * tile_stride;
    const int last = end * lanes < work.count ? end * lanes : work.count;
    for (int index = begin * lanes; index < last && index < begin * lanes + work.rows_ahead; ++index)
        for (long l = 0; l < lines; ++l)
            _mm_prefetch(reinterpret_cast<const char*>(row_address(work, index) + l * line), _MM_HINT_T1);
    Move move;
    start_move(work, begin, last, buffers[0], move);
    for (long l = 0; l < lines; ++l) move(l);
    const int groups = groups_of_rows(work.rows);
    const std::size_t x_step = Product::group_bytes(work.k);
    for (int block = begin; block < end; ++block) {
        const bool more = block + 1 < end;
        const std::byte* side_by_side = buffers[(block - begin) % 2];
        if (more) start_move(work, block + 1, last, buffers[(block + 1 - begin) % 2], move);
        const int left = last - block * lanes;
        const auto mask = static_cast<__mmask16>(left >= lanes ? 0xffffu : (1u << left) - 1u);
        Product::start(side_by_side, work.k, rest);
        for (int group = 0; group < groups; ++group) {
            __m512 sum[P];
            const std::byte* x = work.x + numel(group, x_step);
            if (more && group == 0) {
                Product::template block<P>(side_by_side, x, work.k, rest, sum, [&](long l) { move(l); });
                for (long l = Product::lines(work.k); l < lines; ++l) move(l);
            } else {
                Product::template block<P>(side_by_side, x, work.k, rest, sum, [](long) {});
            }
            const int rows = work.rows - group * x_rows;
            store_rows(sum, 0, 1, rows < P ? rows : P,
                       work.y + group * x_rows * work.y_stride + block * lanes, work.y_stride, mask);
        }
    }
}

template <typename Product>
void run(const GatheredWork& work, int begin, int end) {
    switch (num_tile_columns(work.rows)) {
        case 1:
            return run_blocks<Product, 1>(work, begin, end);
        case 2:
            return run_blocks<Product, 2>(work, begin, end);
        case 4:
            return run_blocks<Product, 4>(work, begin, end);
        default:
            return run_blocks<Product, x_rows>(work, begin, end);
    }
}

/// int8. Tile 0: sums of a group of inputs, 16 rows of 2 P; tile 1: weights; tile 2: activations, the P high
/// halves, then the low halves.
struct Int8Rows {
    static long lines(int k) { return num_chunks(k, tile_inputs); }
    /// Bytes of the tiles of one group of activations and of their scales, with P repeated to fill a vector.
    static std::size_t group_bytes(int k) { return lines(k) * tile_stride + scale_groups(k) * line; }
    static std::size_t rest_bytes(int k) { return (scale_groups(k) + 1) * line; }

    template <int P>
    static TileConfig config(int) {
        TileConfig tiles;
        tiles.set(0, tile_rows, 8 * P);
        tiles.set(1, tile_rows, row_bytes);
        tiles.set(2, tile_rows, 8 * P);
        return tiles;
    }

    static void prepare(const MatmulWork& work, std::byte* out) {
        const long groups = scale_groups(work.k), width = groups * quant_block;
        const int columns = num_tile_columns(work.rows);
        std::memset(out, 0, groups_of_rows(work.rows) * group_bytes(work.k));
        for (int first = 0; first < work.rows; first += x_rows, out += group_bytes(work.k)) {
            const int rows = work.rows - first < x_rows ? work.rows - first : x_rows;
            for (int t = 0; t < rows; ++t)
                for (int half = 0; half < 2; ++half) {
                    const std::int8_t* x = work.x_int8 + (2l * (first + t) + half) * width;
                    for (long four = 0; four < lines(work.k) * tile_rows; ++four)
                        std::memcpy(out + four * line + (half * columns + t) * 4, x + 4 * four, 4);
                }
            auto* scales = reinterpret_cast<float*>(out + lines(work.k) * tile_stride);
            for (long g = 0; g < groups; ++g)
                for (int i = 0; i < lanes; ++i)
                    if (i % columns < rows)
                        scales[g * lanes + i] = work.x_scale[(first + i % columns) * groups + g];
        }
    }

    /// Converts the scales of 16 rows, which follow the weights, to f32, group by group.
    static void start(const std::byte* rows, int k, std::byte* rest) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i offsets = _mm512_slli_epi32(lane, 6);
        const long behind = (k + int8_padding - 1) / int8_padding * int8_padding;
        for (long g = 0; g < scale_groups(k); g += 2) {
            const long at = behind + 2 * g;
            const __m512i two =
                _mm512_i32gather_epi32(offsets, rows + at / line * tile_stride + at % line, 1);
            _mm512_store_si512(rest + g * line, _mm512_slli_epi32(two, 16));
            _mm512_store_si512(rest + (g + 1) * line,
                               _mm512_and_si512(two, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
        }
    }

    /// Selects the lanes of two vectors of dots that are high halves (`half` 0) or low halves, and each
    /// lane's scale for sum `p`.
    template <int P>
    static __m512i half_lanes(int half) {
        alignas(64) std::int32_t at[lanes];
        for (int i = 0; i < lanes; ++i) at[i] = i / P * 2 * P + i % P + half * P;
        return _mm512_load_si512(at);
    }
    template <int P>
    static __m512i scale_lanes(int p) {
        alignas(64) std::int32_t at[lanes];
        for (int i = 0; i < lanes; ++i) at[i] = p * (lanes / P) + i / P;
        return _mm512_load_si512(at);
    }

    template <int P, typename Lines>
    [[gnu::always_inline]] static void block(const std::byte* rows, const std::byte* x, int k,
                                             const std::byte* scales, __m512 (&sum)[P], Lines each_line) {
        const long groups = scale_groups(k);
        const std::byte* x_scales = x + lines(k) * tile_stride;
        const __m512i high = half_lanes<P>(0), low = half_lanes<P>(1);
        alignas(64) std::int32_t dots[2][2 * P * lanes];
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sum[p] = _mm512_setzero_ps();
        const auto add = [&](long g) {
            const std::int32_t* dot = dots[g % 2];
            const __m512 scale = _mm512_load_ps(scales + g * line);
            const __m512 x_scale = _mm512_loadu_ps(x_scales + g * line);
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) {
                const __m512i first = _mm512_load_si512(dot + 2 * p * lanes);
                const __m512i second = _mm512_load_si512(dot + (2 * p + 1) * lanes);
                const __m512i both = _mm512_add_epi32(
                    _mm512_slli_epi32(_mm512_permutex2var_epi32(first, high, second), int8_low_bits),
                    _mm512_permutex2var_epi32(first, low, second));
                const __m512 factor = _mm512_mul_ps(_mm512_permutexvar_ps(scale_lanes<P>(p), scale), x_scale);
                sum[p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), factor, sum[p]);
            }
        };
        for (long g = 0; g < groups; ++g) {
            const long c = 2 * g;
            _tile_zero(0);
            each_line(c);
            _tile_loadd(1, rows + c * tile_stride, line);
            _tile_loadd(2, x + c * tile_stride, line);
            _tile_dpbssd(0, 1, 2);
            if ((c + 1) * tile_inputs < k) {
                each_line(c + 1);
                _tile_loadd(1, rows + (c + 1) * tile_stride, line);
                _tile_loadd(2, x + (c + 1) * tile_stride, line);
                _tile_dpbssd(0, 1, 2);
            }
            if (g > 0) add(g - 1);
            store_tile(dots[g % 2], 8 * P);
        }
        add(groups - 1);
    }

    template <int N>
    static void store_tile(std::int32_t (&dots)[N], long stride) {
        asm volatile("tilestored %%tmm0, (%1,%2,1)" : "=m"(dots) : "r"(&dots), "r"(stride));
    }
};

/// bf16. Tile 0: sums, 16 rows of P; tile 1: weights; tile 2: activations; tiles 3 and 4: weights and
/// activations of the last, shorter chunk.
struct Bf16Rows {
    static constexpr int chunk = 32;
    static long lines(int k) { return num_chunks(k, chunk); }
    static std::size_t group_bytes(int k) { return lines(k) * tile_stride; }
    static std::size_t rest_bytes(int) { return 0; }

    template <int P>
    static TileConfig config(int k) {
        TileConfig tiles;
        tiles.set(0, tile_rows, 4 * P);
        tiles.set(1, tile_rows, row_bytes);
        tiles.set(2, tile_rows, 4 * P);
        const int left = (k % chunk + 1) / 2;
        if (left > 0) {
            tiles.set(3, tile_rows, left * 4);
            tiles.set(4, left, 4 * P);
        }
        return tiles;
    }

    static void prepare(const MatmulWork& work, std::byte* out) {
        const long pairs = (work.k + 1) / 2;
        std::memset(out, 0, groups_of_rows(work.rows) * group_bytes(work.k));
        for (int first = 0; first < work.rows; first += x_rows, out += group_bytes(work.k)) {
            const int rows = work.rows - first < x_rows ? work.rows - first : x_rows;
            for (int t = 0; t < rows; ++t)
                for (long pair = 0; pair < pairs; ++pair)
                    std::memcpy(out + pair * line + t * 4, work.x_bf16 + (first + t) * pairs + pair, 4);
        }
    }

    static void start(const std::byte*, int, std::byte*) {}

    template <int P, typename Lines>
    [[gnu::always_inline]] static void block(const std::byte* rows, const std::byte* x, int k,
                                             const std::byte*, __m512 (&sum)[P], Lines each_line) {
        _tile_zero(0);
        const long full_chunks = k / chunk;
        for (long c = 0; c < full_chunks; ++c) {
            each_line(c);
            _tile_loadd(1, rows + c * tile_stride, line);
            _tile_loadd(2, x + c * tile_stride, line);
            _tile_dpbf16ps(0, 1, 2);
        }
        if (k % chunk != 0) {
            each_line(full_chunks);
            _tile_loadd(3, rows + full_chunks * tile_stride, line);
            _tile_loadd(4, x + full_chunks * tile_stride, line);
            _tile_dpbf16ps(0, 3, 4);
        }
        alignas(64) float sums[P * lanes];
        asm volatile("tilestored %%tmm0, (%1,%2,1)" : "=m"(sums) : "r"(&sums), "r"(long{4 * P}));
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sum[p] = _mm512_load_ps(sums + p * lanes);
    }
};

template <typename Product>
std::size_t x_bytes(int k, int rows) {
    return groups_of_rows(rows) * Product::group_bytes(k);
}
template <typename Product>
std::size_t scratch_bytes(int k, std::size_t bytes_of_row) {
    return 2 * tile_rows * bytes_of_row + Product::rest_bytes(k);
}

}  // namespace

const GatheredKernel gathered_int8_amx = {x_bytes<Int8Rows>, scratch_bytes<Int8Rows>, Int8Rows::prepare,
                                          run<Int8Rows>};
const GatheredKernel gathered_bf16_amx = {x_bytes<Bf16Rows>, scratch_bytes<Bf16Rows>, Bf16Rows::prepare,
                                          run<Bf16Rows>};

}  // namespace draftscope::kernels
