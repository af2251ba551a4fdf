#pragma once

#include <immintrin.h>

#include <cstdint>

namespace draftscope::kernels {

/// VecPortable's members on one 512-bit register (AVX-512 F, BW, DQ, VL).
struct VecAvx512 {
    static constexpr int max_query_rows = 12;  ///< query rows that share one load of keys or values
    static constexpr int wide_blocks = 2;      ///< blocks of keys processed together for max_query_rows
    static constexpr int narrow_blocks = 4;    ///< and for up to two rows
    using F = __m512;

    static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
    static F load(const std::uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static F load_n(const std::uint16_t* p, int n) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
    }
    static void store_f16(std::uint16_t* p, F a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
    static void store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first(n), a); }
    static F set1(float x) { return _mm512_set1_ps(x); }
    /// Keeps `a` in a register: GCC would fold its load into every use, one memory access each.
    static void hold(F& a) { asm("" : "+v"(a)); }
    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F div(F a, F b) { return _mm512_div_ps(a, b); }
    static F mul_add(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static F min(F a, F b) { return _mm512_min_ps(a, b); }
    static F round(F a) {
        const F shift = _mm512_set1_ps(12582912.0f);
        return _mm512_sub_ps(_mm512_add_ps(a, shift), shift);
    }
    static F times_exp2(F p, F shifted) {
        const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
        return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
    }
    static F exp2_integral(F a) {
        const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
        return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
    }
    static F keep_from(F a, F limit, F value) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, limit, _CMP_GE_OQ), value);
    }
    static std::uint32_t greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
    /// Finds which of 16 bytes are not 0.
    static std::uint32_t marked(const std::uint8_t* bytes) {
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
        return _mm_test_epi8_mask(all, all);
    }
    /// Writes first + the numbers of the set lanes, ascending; all 16 entries of `out` are written.
    static void store_lanes(std::int32_t* out, std::uint32_t mask, int first) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), index));
    }
    /// Packs the set lanes of `a`; all 16 entries of `out` are written.
    static void store_packed(float* out, std::uint32_t mask, F a) {
        _mm512_storeu_ps(out, _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), a));
    }
    static void store_packed(std::int32_t* out, std::uint32_t mask, const std::int32_t* from) {
        _mm512_storeu_si512(
            out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), _mm512_loadu_si512(from)));
    }
    static F to_bf16_and_back(F a) {
        const __m512i bits = _mm512_castps_si512(a);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __m512i cut = _mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
        const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
        return _mm512_mask_mov_ps(_mm512_castsi512_ps(cut), nan, a);
    }
    static float sum(F a) {
        const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
        const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
        return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
    static float largest(F a) {
        const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
        const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
};

}  // namespace draftscope::kernels
