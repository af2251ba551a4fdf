#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/ops/float16.h"

namespace draftscope::kernels {

/// 16 floats and the operations of the row kernels, in plain C++. The other vec_*.h files have the same
/// members on registers. Sums of lanes always use the same tree (halves folded together).
struct VecPortable {
    static constexpr int max_query_rows = 2;  ///< query rows that share one load of keys or values
    static constexpr int wide_blocks = 2;     ///< blocks of keys processed together for max_query_rows
    static constexpr int narrow_blocks = 2;   ///< and for up to two rows
    struct F {
        float v[16];
    };

    template <typename Op>
    static F each(Op op) {
        F r;
        for (int i = 0; i < 16; ++i) r.v[i] = op(i);
        return r;
    }
    static F load(const float* p) {
        return each([&](int i) { return p[i]; });
    }
    static F load_n(const float* p, int n) {
        return each([&](int i) { return i < n ? p[i] : 0.0f; });
    }
    static F load(const std::uint16_t* p) {
        return each([&](int i) { return f16_to_float(p[i]); });
    }
    static F load_n(const std::uint16_t* p, int n) {
        return each([&](int i) { return i < n ? f16_to_float(p[i]) : 0.0f; });
    }
    static void store_f16(std::uint16_t* p, const F& a) {
        for (int i = 0; i < 16; ++i) p[i] = float_to_f16(a.v[i]);
    }
    static void store(float* p, const F& a) {
        for (int i = 0; i < 16; ++i) p[i] = a.v[i];
    }
    static void store_n(float* p, const F& a, int n) {
        for (int i = 0; i < n; ++i) p[i] = a.v[i];
    }
    static F set1(float x) {
        return each([&](int) { return x; });
    }
    static void hold(F&) {}  ///< a hint for register paths
    static F add(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] + b.v[i]; });
    }
    static F sub(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] - b.v[i]; });
    }
    static F mul(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] * b.v[i]; });
    }
    static F div(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] / b.v[i]; });
    }
    static F mul_add(const F& a, const F& b, const F& c) {
        return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
    }
    static F max(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
    }
    static F min(const F& a, const F& b) {
        return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
    }
    /// Nearest integer, for |a| < 2^22: adding 1.5 * 2^23 leaves no fraction bits.
    static F round(const F& a) {
        return each([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
    }
    /// p * 2^n of n in the low bits of n + 2^23 * 1.5, p about 1: added to p's exponent.
    static F times_exp2(const F& p, const F& shifted) {
        return each([&](int i) {
            return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p.v[i]) +
                                        (std::bit_cast<std::uint32_t>(shifted.v[i]) << 23));
        });
    }
    /// 2^a for integral a in [-126, 127].
    static F exp2_integral(const F& a) {
        return each([&](int i) {
            return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<int>(a.v[i]) + 127) << 23);
        });
    }
    /// `value` if a >= limit, else 0.
    static F keep_from(const F& a, const F& limit, const F& value) {
        return each([&](int i) { return a.v[i] >= limit.v[i] ? value.v[i] : 0.0f; });
    }
    /// Bit i: a > b.
    static std::uint32_t greater(const F& a, const F& b) {
        std::uint32_t mask = 0;
        for (int i = 0; i < 16; ++i) mask |= static_cast<std::uint32_t>(a.v[i] > b.v[i]) << i;
        return mask;
    }
    static F to_bf16_and_back(const F& a) {
        return each([&](int i) {
            const auto bits = std::bit_cast<std::uint32_t>(a.v[i]);
            if ((bits & 0x7fffffffu) > 0x7f800000u) return a.v[i];
            return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
        });
    }
    static float sum(const F& a) {
        float s[16];
        for (int i = 0; i < 16; ++i) s[i] = a.v[i];
        for (int half = 8; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) s[i] += s[i + half];
        }
        return s[0];
    }
    static float largest(const F& a) {
        float m = a.v[0];
        for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
        return m;
    }
};

}  // namespace draftscope::kernels
