#pragma once

#include "kernels/cpu/vector/attention_kernels.h"
#include "kernels/cpu/vector/row_kernels.h"

/// The row kernels over one vector type. One file per instruction set includes this; `V` gives each instance
/// its own symbols.
namespace draftscope::kernels {

template <typename V>
struct RowKernelsOf : VecMath<V> {
    using F = typename V::F;
    using VecMath<V>::load_row, VecMath<V>::store_row, VecMath<V>::exp, VecMath<V>::exp2_below_one;
    using Attention = AttentionKernelsOf<V>;

    static void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
        F squares[4] = {V::set1(0.0f), V::set1(0.0f), V::set1(0.0f), V::set1(0.0f)};
        int i = 0;
        for (; i + 64 <= n; i += 64) {
            for (int u = 0; u < 4; ++u) {
                const F a = V::load(x + i + 16 * u);
                squares[u] = V::mul_add(a, a, squares[u]);
            }
        }
        for (; i < n; i += 16) {
            const F a = load_row(x, i, n);
            squares[0] = V::mul_add(a, a, squares[0]);
        }
        const F total = V::add(V::add(squares[0], squares[1]), V::add(squares[2], squares[3]));
        const float mean = V::sum(total) / static_cast<float>(n);
        const F factor = V::set1(1.0f / __builtin_sqrtf(mean + eps));
        for (i = 0; i < n; i += 16) {
            store_row(y, i, n, V::mul(V::mul(load_row(x, i, n), factor), load_row(weight, i, n)));
        }
    }

    static void silu_mul(const float* gate, const float* up, int n, float* y) {
        const F one = V::set1(1.0f);
        const F zero = V::set1(0.0f);
        for (int i = 0; i < n; i += 16) {
            const F g = load_row(gate, i, n);
            const F silu = V::div(g, V::add(one, exp(V::sub(zero, g))));
            store_row(y, i, n, V::mul(silu, load_row(up, i, n)));
        }
    }

    static void add(const float* x, int n, float* y) {
        for (int i = 0; i < n; i += 16) store_row(y, i, n, V::add(load_row(y, i, n), load_row(x, i, n)));
    }

    static void cast_to_bf16(float* x, int n) {
        for (int i = 0; i < n; i += 16) store_row(x, i, n, V::to_bf16_and_back(load_row(x, i, n)));
    }

    static void to_f16(const float* x, int n, std::uint16_t* y) {
        for (int i = 0; i < n; i += 16) {
            // This order of operands lets NaN pass.
            const F held = V::min(V::set1(65504.0f), V::max(V::set1(-65504.0f), load_row(x, i, n)));
            if (n - i >= 16) {
                V::store_f16(y + i, held);
                continue;
            }
            std::uint16_t last[16];
            V::store_f16(last, held);
            for (int j = i; j < n; ++j) y[j] = last[j - i];
        }
    }

    static void rope(float* x, int heads, int half, const float* cos, const float* sin) {
        for (int h = 0; h < heads; ++h, x += 2 * half) {
            for (int j = 0; j < half; j += 16) {
                const F a = load_row(x, j, half);
                const F b = load_row(x + half, j, half);
                const F c = load_row(cos, j, half);
                const F s = load_row(sin, j, half);
                store_row(x, j, half, V::sub(V::mul(a, c), V::mul(b, s)));
                store_row(x + half, j, half, V::add(V::mul(b, c), V::mul(a, s)));
            }
        }
    }

    static float largest(const float* x, int n) {
        // Four maxima shorten the dependency chain.
        F best[4] = {V::set1(-__builtin_inff()), V::set1(-__builtin_inff()), V::set1(-__builtin_inff()),
                     V::set1(-__builtin_inff())};
        int i = 0;
        for (; i + 64 <= n; i += 64) {
            for (int u = 0; u < 4; ++u) best[u] = V::max(V::load(x + i + 16 * u), best[u]);
        }
        for (; i + 16 <= n; i += 16) best[0] = V::max(V::load(x + i), best[0]);
        float m = V::largest(V::max(V::max(best[0], best[1]), V::max(best[2], best[3])));
        for (; i < n; ++i) m = x[i] > m ? x[i] : m;
        return m;
    }

    static float sum_exp(const float* x, int n, float shift, float scale) {
        constexpr float log2_e = 1.44269504f;
        F total[2] = {V::set1(0.0f), V::set1(0.0f)};
        const F factor = V::set1(scale), to_base_2 = V::set1(log2_e);
        const F minus = V::set1(-shift);
        const F low = V::set1(-127.0f);
        const auto term = [&](F v) {
            return exp2_below_one(V::max(V::mul(V::mul(V::add(v, minus), factor), to_base_2), low));
        };
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            for (int u = 0; u < 2; ++u) total[u] = V::add(total[u], term(V::load(x + i + 16 * u)));
        }
        float last[16];
        for (; i < n; i += 16) {
            const int count = n - i < 16 ? n - i : 16;
            for (int j = 0; j < 16; ++j) last[j] = j < count ? x[i + j] : -__builtin_inff();
            total[0] = V::add(total[0], term(V::load(last)));
        }
        return V::sum(V::add(total[0], total[1]));
    }

    static void exp_scaled(const float* x, int n, float shift, float scale, float* y) {
        const F minus = V::set1(-shift), factor = V::set1(scale), low = V::set1(-100.0f);
        for (int i = 0; i < n; i += 16) {
            const F t = V::mul(V::add(load_row(x, i, n), minus), factor);
            // For NaN, max() returns its second operand.
            store_row(y, i, n, exp(V::max(t, low)));
        }
    }

    static int count_above(const float* x, int n, float limit) {
        const F bound = V::set1(limit);
        int found = 0;
        int i = 0;
        for (; i + 16 <= n; i += 16) found += __builtin_popcount(V::greater(V::load(x + i), bound));
        for (; i < n; ++i) found += x[i] > limit ? 1 : 0;
        return found;
    }

    static int above(const float* x, int first, int n, float limit, std::int32_t* out, int max_found,
                     int* next) {
        const F bound = V::set1(limit);
        int found = 0;
        int i = first;
        for (; i + 16 <= n && found + 16 <= max_found; i += 16) {
            // Skips runs of values without any above the bound, which are common.
            for (; i + 80 <= n; i += 64) {
                std::uint32_t any = 0;
                for (int u = 0; u < 4; ++u) any |= V::greater(V::load(x + i + 16 * u), bound);
                if (any != 0) break;
            }
            std::uint32_t mask = V::greater(V::load(x + i), bound);
            // Which lanes exceed the bound is unpredictable: if lanes can be packed, no branch is needed.
            if constexpr (requires { V::store_lanes(out, mask, i); }) {
                V::store_lanes(out + found, mask, i);
                found += __builtin_popcount(mask);
            } else {
                for (; mask != 0; mask &= mask - 1) out[found++] = i + __builtin_ctz(mask);
            }
        }
        for (; i < n && n - i < 16 && found < max_found; ++i) {
            if (x[i] > limit) out[found++] = i;
        }
        *next = i;
        return found;
    }

    static int take_above(const float* x, int n, int first, float limit, float* values,
                          std::int32_t* indices) {
        const F bound = V::set1(limit);
        int found = 0;
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const F all = V::load(x + i);
            std::uint32_t mask = V::greater(all, bound);
            if constexpr (requires { V::store_packed(values, mask, all); }) {
                V::store_packed(values + found, mask, all);
                V::store_lanes(indices + found, mask, first + i);
                found += __builtin_popcount(mask);
            } else {
                for (; mask != 0; mask &= mask - 1, ++found) {
                    const int lane = __builtin_ctz(mask);
                    values[found] = x[i + lane];
                    indices[found] = first + i + lane;
                }
            }
        }
        for (; i < n; ++i) {
            values[found] = x[i];
            indices[found] = first + i;
            found += x[i] > limit ? 1 : 0;
        }
        return found;
    }

    static int take_between(const float* x, int n, float low, float high, float* values) {
        const F least = V::set1(low), highest = V::set1(high);
        int found = 0;
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const F all = V::load(x + i);
            std::uint32_t mask = V::greater(all, least) & ~V::greater(all, highest);
            if constexpr (requires { V::store_packed(values, mask, all); }) {
                V::store_packed(values + found, mask, all);
                found += __builtin_popcount(mask);
            } else {
                for (; mask != 0; mask &= mask - 1) values[found++] = x[i + __builtin_ctz(mask)];
            }
        }
        for (; i < n; ++i) {
            values[found] = x[i];
            found += x[i] > low && !(x[i] > high) ? 1 : 0;
        }
        return found;
    }

    static int take_marked(const std::uint8_t* marks, int n, std::int32_t* indices, std::uint32_t* words) {
        int found = 0;
        for (int i = 0; i < n; i += 32) {
            std::uint32_t word = 0;
            if constexpr (requires { V::marked(marks); }) {
                for (int half = 0; half < 32; half += 16) {
                    const std::uint32_t mask = V::marked(marks + i + half);
                    V::store_lanes(indices + found, mask, i + half);
                    found += __builtin_popcount(mask);
                    word |= mask << half;
                }
            } else {
                for (int part = 0; part < 32; part += 8) {
                    std::uint64_t eight;
                    __builtin_memcpy(&eight, marks + i + part, sizeof(eight));
                    // Each byte's bit moves to the highest byte, the first byte's lowest.
                    word |= static_cast<std::uint32_t>(eight * 0x0102040810204080u >> 56) << part;
                }
                for (std::uint32_t left = word; left != 0; left &= left - 1)
                    indices[found++] = i + __builtin_ctz(left);
            }
            words[i / 32] = word;
        }
        return found;
    }

    static void gather_logits(const float* logits, const std::uint64_t* index, const std::int32_t* tokens,
                              int n, float* values) {
        for (int i = 0; i < n; ++i) {
            const auto token = static_cast<std::uint32_t>(tokens[i]);
            const std::uint64_t entry = index[token / 32];
            const std::uint32_t up_to_token = static_cast<std::uint32_t>(entry) << (31 - token % 32);
            values[i] =
                logits[(entry >> 32) + static_cast<std::uint32_t>(__builtin_popcount(up_to_token)) - 1];
        }
    }

    static void take_indices(const float* values, const std::int32_t* indices, int n, float limit, int ties,
                             int max_found, std::int32_t* out) {
        int found = 0;
        int i = 0;
        if constexpr (requires { V::store_packed(out, 0u, indices); }) {
            const F bound = V::set1(limit);
            for (; i + 16 <= n && found + 16 <= max_found; i += 16) {
                const F all = V::load(values + i);
                std::uint32_t mask = V::greater(all, bound);
                std::uint32_t equal = ~(mask | V::greater(bound, all)) & 0xffffu;
                for (; equal != 0 && ties > 0; equal &= equal - 1, --ties) mask |= equal & (0u - equal);
                V::store_packed(out + found, mask, indices + i);
                found += __builtin_popcount(mask);
            }
        }
        for (; i < n && found < max_found; ++i) {
            // No branch on an unpredictable value: a place that is not taken is overwritten.
            const bool tie = values[i] == limit && ties > 0;
            ties -= tie ? 1 : 0;
            out[found] = indices[i];
            found += values[i] > limit || tie ? 1 : 0;
        }
    }

    static constexpr RowKernels table() {
        return {rms_norm,
                silu_mul,
                add,
                cast_to_bf16,
                to_f16,
                rope,
                largest,
                sum_exp,
                above,
                take_above,
                take_indices,
                count_above,
                take_between,
                take_marked,
                gather_logits,
                Attention::score_blocks,
                Attention::exp2_scores,
                Attention::mix,
                Attention::join_chunks,
                exp_scaled};
    }
};

}  // namespace draftscope::kernels
