#include <immintrin.h>

#include "kernels/cpu/matmul/interleave.h"

namespace draftscope::kernels {

void interleave16_avx512(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                         const std::uint32_t* const* ahead) {
    for (int first = 0; first < groups; first += 16) {
        __m512i a[16], b[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) a[r] = _mm512_load_si512(rows[r] + first);
        if (ahead != nullptr) {
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r)
                _mm_prefetch(reinterpret_cast<const char*>(ahead[r] + first), _MM_HINT_T1);
        }
        // Transposes pairs of rows, then groups of four, then quarters of a register.
#pragma GCC unroll 8
        for (int r = 0; r < 16; r += 2) {
            b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
            b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < 16; r += 4) {
            a[r] = _mm512_unpacklo_epi64(b[r], b[r + 2]);
            a[r + 1] = _mm512_unpackhi_epi64(b[r], b[r + 2]);
            a[r + 2] = _mm512_unpacklo_epi64(b[r + 1], b[r + 3]);
            a[r + 3] = _mm512_unpackhi_epi64(b[r + 1], b[r + 3]);
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            b[g] = _mm512_shuffle_i32x4(a[g], a[g + 4], 0x88);
            b[g + 4] = _mm512_shuffle_i32x4(a[g], a[g + 4], 0xdd);
            b[g + 8] = _mm512_shuffle_i32x4(a[g + 8], a[g + 12], 0x88);
            b[g + 12] = _mm512_shuffle_i32x4(a[g + 8], a[g + 12], 0xdd);
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            a[g] = _mm512_shuffle_i32x4(b[g], b[g + 8], 0x88);
            a[g + 4] = _mm512_shuffle_i32x4(b[g + 4], b[g + 12], 0x88);
            a[g + 8] = _mm512_shuffle_i32x4(b[g], b[g + 8], 0xdd);
            a[g + 12] = _mm512_shuffle_i32x4(b[g + 4], b[g + 12], 0xdd);
        }
        // Copies a constant length: for a variable one, GCC emits a string move through the stack.
        const int left = groups - first;
#pragma GCC unroll 16
        for (int g = 0; g < 16; ++g)
            if (g < left) _mm512_store_si512(out + (first + g) * 16, a[g]);
    }
}

}  // namespace draftscope::kernels
