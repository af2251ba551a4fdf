#pragma once

#include <immintrin.h>

#include <cstdint>

namespace draftscope::kernels {

/// VecPortable's members on two 256-bit registers (AVX2 and FMA).
struct VecAvx2 {
    static constexpr int max_query_rows = 6;  ///< query rows that share one load of keys or values
    static constexpr int wide_blocks = 1;     ///< blocks of keys processed together for max_query_rows
    static constexpr int narrow_blocks = 2;   ///< and for up to two rows
    struct F {
        __m256 lo, hi;
    };

    static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
    static F load_n(const float* p, int n) {
        return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
    }
    static F load(const std::uint16_t* p) {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
    }
    static F load_n(const std::uint16_t* p, int n) {
        std::uint16_t all[16] = {};
        __builtin_memcpy(all, p, static_cast<unsigned>(n) * sizeof(std::uint16_t));
        return load(all);
    }
    static void store_f16(std::uint16_t* p, F a) {
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, nearest));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, nearest));
    }
    static void store(float* p, F a) {
        _mm256_storeu_ps(p, a.lo);
        _mm256_storeu_ps(p + 8, a.hi);
    }
    static void store_n(float* p, F a, int n) {
        _mm256_maskstore_ps(p, first(n), a.lo);
        _mm256_maskstore_ps(p + 8, first(n - 8), a.hi);
    }
    static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    static void hold(F&) {}
    static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
    static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
    static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
    static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
    static F mul_add(F a, F b, F c) {
        return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
    }
    static F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
    static F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
    static F round(F a) {
        const F shift = set1(12582912.0f);
        return sub(add(a, shift), shift);
    }
    static F times_exp2(F p, F shifted) {
        return {times_exp2_half(p.lo, shifted.lo), times_exp2_half(p.hi, shifted.hi)};
    }
    static F exp2_integral(F a) { return {exp2_half(a.lo), exp2_half(a.hi)}; }
    static F keep_from(F a, F limit, F value) {
        return {_mm256_and_ps(_mm256_cmp_ps(a.lo, limit.lo, _CMP_GE_OQ), value.lo),
                _mm256_and_ps(_mm256_cmp_ps(a.hi, limit.hi, _CMP_GE_OQ), value.hi)};
    }
    static std::uint32_t greater(F a, F b) {
        const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ));
        const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
        return static_cast<std::uint32_t>(lo) | static_cast<std::uint32_t>(hi) << 8;
    }
    static F to_bf16_and_back(F a) { return {round_half(a.lo), round_half(a.hi)}; }
    static float sum(F a) {
        const __m256 half = _mm256_add_ps(a.lo, a.hi);
        const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
        return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
    static float largest(F a) {
        const __m256 half = _mm256_max_ps(a.lo, a.hi);
        const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }

  private:
    static __m256i first(int n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static __m256 times_exp2_half(__m256 p, __m256 shifted) {
        const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    }
    static __m256 exp2_half(__m256 a) {
        const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    }
    static __m256 round_half(__m256 a) {
        const __m256i bits = _mm256_castps_si256(a);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256i cut = _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
        const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
        return _mm256_blendv_ps(_mm256_castsi256_ps(cut), a, nan);
    }
};

}  // namespace draftscope::kernels
