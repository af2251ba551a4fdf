#pragma once

#include <immintrin.h>

#include "kernels/cpu/matmul/matmul_tiles.h"

/// Only files of 256-bit instruction sets include this header. Internal linkage: each file has its own copy.
namespace draftscope::kernels {
namespace {

/// A block of 16 outputs is two registers.
constexpr int halves = 2;

/// Stores half `h` of one row of a block.
inline void store_half(const MatmulWork& work, int block, int row, int h, __m256 y) {
    const int first = block * lanes + 8 * h;
    const __m256i mask =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(work.n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if (work.bias != nullptr) y = _mm256_add_ps(y, _mm256_maskload_ps(work.bias + first, mask));
    _mm256_maskstore_ps(work.y + row * work.y_stride + first, mask, y);
}

inline void store_tile_row(const MatmulWork& work, int block, int row, const __m256 (&sum)[halves]) {
    for (int h = 0; h < halves; ++h) store_half(work, block, row, h, sum[h]);
}

/// Calls run(half) for both halves of a block. Each makes half of the prefetches, since each reads all lines.
template <typename Run>
void for_each_half(const MatmulWork& work, Run run) {
    const std::ptrdiff_t step = work.stream != nullptr ? work.stream->step : 0;
    for (int h = 0; h < halves; ++h) {
        if (work.stream != nullptr) work.stream->step = step * (h + 1) / halves - step * h / halves;
        run(h);
    }
    if (work.stream != nullptr) work.stream->step = step;
}

/// Calls step(i) for every fourth input i in [begin, end) and prefetches one line for each.
template <typename Step>
[[gnu::always_inline]] inline void for_each_quad(StreamReader& stream, long begin, long end, Step step) {
    constexpr int at_once = 4;
    long i = begin;
#pragma GCC unroll 1
    for (; i + 4 * at_once <= end; i += 4 * at_once) {
        stream.fetch_lines<at_once>();
#pragma GCC unroll 2
        for (int q = 0; q < at_once; ++q) step(i + 4 * q);
    }
    for (; i < end; i += 4) {
        stream.fetch_line();
        step(i);
    }
}

inline __m256 half_floats(const std::uint16_t* at) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}

/// Broadcasts four int8 activations to every lane.
inline __m256i four_inputs(const std::int8_t* x) {
    int four;
    __builtin_memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi32(four);
}

}  // namespace
}  // namespace draftscope::kernels
