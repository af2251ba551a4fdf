#pragma once

#include "kernels/cpu/row_kernels.h"

/// The row kernels over one vector type. Included by one file per instruction set; `V` keeps the instances
/// apart for the linker.
namespace draftscope::kernels {

template <typename V>
struct RowKernelsOf {
    using F = typename V::F;

    static F load_row(const float* x, int i, int n) {
        return n - i >= 16 ? V::load(x + i) : V::load_n(x + i, n - i);
    }
    static void store_row(float* y, int i, int n, F a) {
        if (n - i >= 16) {
            V::store(y + i, a);
        } else {
            V::store_n(y + i, a, n - i);
        }
    }

    /// e^x to about 1e-7 relative: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, times 2^n.
    /// Below -87.3 (the smallest normal) exactly 0, above 88 held at e^88.
    static F exp(F x) {
        const F low = V::set1(-87.3f);
        const F clamped = V::min(V::max(x, low), V::set1(88.0f));
        const F n = V::round(V::mul(clamped, V::set1(1.44269504f)));
        // ln 2 in two parts, the first short enough for n * part to be exact.
        F r = V::mul_add(n, V::set1(-0.693359375f), clamped);
        r = V::mul_add(n, V::set1(2.12194440e-4f), r);
        F p = V::set1(1.9875691500e-4f);
        p = V::mul_add(p, r, V::set1(1.3981999507e-3f));
        p = V::mul_add(p, r, V::set1(8.3334519073e-3f));
        p = V::mul_add(p, r, V::set1(4.1665795894e-2f));
        p = V::mul_add(p, r, V::set1(1.6666665459e-1f));
        p = V::mul_add(p, r, V::set1(5.0000001201e-1f));
        p = V::add(V::mul_add(p, V::mul(r, r), r), V::set1(1.0f));
        return V::keep_from(x, low, V::mul(p, V::exp2_integral(n)));
    }

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

    static void round_to_bf16(float* x, int n) {
        for (int i = 0; i < n; i += 16) store_row(x, i, n, V::to_bf16_and_back(load_row(x, i, n)));
    }

    static void to_f16(const float* x, int n, std::uint16_t* y) {
        for (int i = 0; i < n; i += 16) {
            // In this order a NaN goes through.
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
        // One maximum alone would wait for itself.
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

    /// 2^x for x in [-127, 0] to about 1e-7 relative, half the work of exp(); exactly 0 at -127.
    static F exp2_below_one(F x) {
        const F shift = V::set1(12582912.0f);
        const F shifted = V::add(x, shift);
        const F f = V::sub(x, V::sub(shifted, shift));
        F p = V::set1(1.5403530e-4f);
        p = V::mul_add(p, f, V::set1(1.3333558e-3f));
        p = V::mul_add(p, f, V::set1(9.6181291e-3f));
        p = V::mul_add(p, f, V::set1(5.5504109e-2f));
        p = V::mul_add(p, f, V::set1(2.4022651e-1f));
        p = V::mul_add(p, f, V::set1(6.9314718e-1f));
        p = V::mul_add(p, f, V::set1(1.0f));
        return V::times_exp2(p, shifted);
    }

    static float sum_exp(const float* x, int n, float shift) {
        constexpr float log2_e = 1.44269504f;
        F total[2] = {V::set1(0.0f), V::set1(0.0f)};
        const F scale = V::set1(log2_e);
        const F minus = V::set1(-shift);
        const F low = V::set1(-127.0f);
        const auto term = [&](F v) { return exp2_below_one(V::max(V::mul(V::add(v, minus), scale), low)); };
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
            // The operand that max() gives for a NaN is its second.
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

    static int above(const float* x, int first, int n, float limit, std::int32_t* out, int room, int* next) {
        const F bound = V::set1(limit);
        int found = 0;
        int i = first;
        for (; i + 16 <= n && found + 16 <= room; i += 16) {
            // Most stretches of a row have nothing above a bound that only a few of it pass.
            for (; i + 80 <= n; i += 64) {
                std::uint32_t any = 0;
                for (int u = 0; u < 4; ++u) any |= V::greater(V::load(x + i + 16 * u), bound);
                if (any != 0) break;
            }
            std::uint32_t mask = V::greater(V::load(x + i), bound);
            // Which lanes pass cannot be predicted: where lanes can be packed, there is no branch on it.
            if constexpr (requires { V::store_lanes(out, mask, i); }) {
                V::store_lanes(out + found, mask, i);
                found += __builtin_popcount(mask);
            } else {
                for (; mask != 0; mask &= mask - 1) out[found++] = i + __builtin_ctz(mask);
            }
        }
        for (; i < n && n - i < 16 && found < room; ++i) {
            if (x[i] > limit) out[found++] = i;
        }
        *next = i;
        return found;
    }

    static int take_above(const float* x, int n, int first, float limit, float* values,
                          std::int32_t* places) {
        const F bound = V::set1(limit);
        int found = 0;
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const F all = V::load(x + i);
            std::uint32_t mask = V::greater(all, bound);
            if constexpr (requires { V::store_packed(values, mask, all); }) {
                V::store_packed(values + found, mask, all);
                V::store_lanes(places + found, mask, first + i);
                found += __builtin_popcount(mask);
            } else {
                for (; mask != 0; mask &= mask - 1, ++found) {
                    const int lane = __builtin_ctz(mask);
                    values[found] = x[i + lane];
                    places[found] = first + i + lane;
                }
            }
        }
        for (; i < n; ++i) {
            values[found] = x[i];
            places[found] = first + i;
            found += x[i] > limit ? 1 : 0;
        }
        return found;
    }

    static int take_between(const float* x, int n, float low, float high, float* values) {
        const F least = V::set1(low), most = V::set1(high);
        int found = 0;
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const F all = V::load(x + i);
            std::uint32_t mask = V::greater(all, least) & ~V::greater(all, most);
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

    static void take_places(const float* values, const std::int32_t* places, int n, float limit, int ties,
                            int most, std::int32_t* out) {
        int found = 0;
        int i = 0;
        if constexpr (requires { V::store_packed(out, 0u, places); }) {
            const F bound = V::set1(limit);
            for (; i + 16 <= n && found + 16 <= most; i += 16) {
                const F all = V::load(values + i);
                std::uint32_t mask = V::greater(all, bound);
                std::uint32_t equal = ~(mask | V::greater(bound, all)) & 0xffffu;
                for (; equal != 0 && ties > 0; equal &= equal - 1, --ties) mask |= equal & (0u - equal);
                V::store_packed(out + found, mask, places + i);
                found += __builtin_popcount(mask);
            }
        }
        for (; i < n && found < most; ++i) {
            // No branch on what cannot be predicted: a place that is not taken is written over.
            const bool tie = values[i] == limit && ties > 0;
            ties -= tie ? 1 : 0;
            out[found] = places[i];
            found += values[i] > limit || tie ? 1 : 0;
        }
    }

    static int take_marked(const std::uint8_t* marks, int n, int tables, std::int32_t* out) {
        int found = 0, i = 0;
        if constexpr (requires { V::marked64(marks); }) {
            for (; i + 64 <= n; i += 64) {
                std::uint64_t mask = V::marked64(marks + i);
                for (int t = 1; t < tables; ++t)
                    mask |= V::marked64(marks + static_cast<std::ptrdiff_t>(t) * n + i);
                for (int part = 0; part < 64; part += 16) {
                    const auto lanes = static_cast<std::uint32_t>(mask >> part & 0xffffu);
                    V::store_lanes(out + found, lanes, i + part);
                    found += __builtin_popcount(lanes);
                }
            }
        }
        for (; i < n; ++i) {
            bool any = false;
            for (int t = 0; t < tables; ++t) any |= marks[static_cast<std::ptrdiff_t>(t) * n + i] != 0;
            if (any) out[found++] = i;
        }
        return found;
    }

    static int take_owned(const float* x, const std::uint8_t* owners, std::uint8_t bit, int n, float* out) {
        int found = 0, i = 0;
        if constexpr (requires { V::marked(owners, bit); }) {
            for (; i + 16 <= n; i += 16) {
                const std::uint32_t mask = V::marked(owners + i, bit);
                V::store_packed(out + found, mask, V::load(x + i));
                found += __builtin_popcount(mask);
            }
        }
        for (; i < n; ++i) {
            out[found] = x[i];
            found += (owners[i] & bit) != 0 ? 1 : 0;
        }
        return found;
    }

    /// weights[r][p] = q[row + r] . key(p) for R heads, V::dot_keys keys at a time: each load of a key serves
    /// R rows.
    /// Of one head's row.
    template <typename T>
    static void fetch_row(const AttentionChunk& c, const void* rows, int position) {
        const T* row = static_cast<const T*>(rows) + c.slots[position] * c.slot_stride;
        constexpr int line = 64 / static_cast<int>(sizeof(T));
        for (int d = 0; d < c.head_dim; d += line) __builtin_prefetch(row + d, 0, 3);
    }

    template <typename T, int R>
    static void dot_rows(const AttentionChunk& c, int row) {
        constexpr int keys = V::dot_keys;
        constexpr int ahead = 24;  ///< positions
        const bool fetch = c.fetch && row == 0;
        const float* q = c.q + static_cast<std::int64_t>(row) * c.head_dim;
        float* weights = c.weights + row * attention_chunk;
        for (int p = 0; p < c.count; p += keys) {
            const T* key[keys];
            F sum[R][keys];
            for (int j = p; fetch && j < p + keys; ++j) {
                if (j + ahead < c.count) fetch_row<T>(c, c.keys, j + ahead);
                fetch_row<T>(c, c.values, j);
            }
#pragma GCC unroll 16
            for (int j = 0; j < keys; ++j)
                key[j] = static_cast<const T*>(c.keys) + c.slots[p + j] * c.slot_stride;
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
                for (int j = 0; j < keys; ++j) sum[r][j] = V::set1(0.0f);
            }
            int d = 0;
            for (; d + 16 <= c.head_dim; d += 16) {
                F a[R];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) a[r] = V::load(q + r * c.head_dim + d);
#pragma GCC unroll 16
                for (int j = 0; j < keys; ++j) {
                    F k = V::load(key[j] + d);
                    V::hold(k);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) sum[r][j] = V::mul_add(a[r], k, sum[r][j]);
                }
            }
            if (d < c.head_dim) {
                const int n = c.head_dim - d;
#pragma GCC unroll 16
                for (int j = 0; j < keys; ++j) {
                    const F k = V::load_n(key[j] + d, n);
#pragma GCC unroll 4
                    for (int r = 0; r < R; ++r) {
                        sum[r][j] = V::mul_add(V::load_n(q + r * c.head_dim + d, n), k, sum[r][j]);
                    }
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) V::sums(sum[r], weights + r * attention_chunk + p);
        }
    }

    /// Turns scores into exp(score - maximum); the padding lanes count nothing.
    static void soften(const AttentionChunk& c, float* weights, float* partial) {
        const int padded = (c.count + 15) / 16 * 16;
        const F scale = V::set1(c.scale);
        for (int p = c.count; p < padded; ++p) weights[p] = 0.0f;
        for (int p = 0; p < padded; p += 16) V::store(weights + p, V::mul(V::load(weights + p), scale));
        for (int p = c.count; p < padded; ++p) weights[p] = -__builtin_inff();
        F best = V::load(weights);
        for (int p = 16; p < padded; p += 16) best = V::max(V::load(weights + p), best);
        const float top = V::largest(best);
        const F minus = V::set1(-top);
        F total = V::set1(0.0f);
        for (int p = 0; p < padded; p += 16) {
            const F e = exp(V::add(V::load(weights + p), minus));
            V::store(weights + p, e);
            total = V::add(total, e);
        }
        partial[c.head_dim] = top;
        partial[c.head_dim + 1] = V::sum(total);
    }

    /// out[r] = sum over positions, ascending, of weight * value, for R rows and `strips` vectors from d on.
    template <typename T, int R, int Strips>
    static void mix_strip(const AttentionChunk& c, int row, int d) {
        F sum[R][Strips];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) sum[r][s] = V::set1(0.0f);
        }
        const float* weights = c.weights + row * attention_chunk;
        for (int p = 0; p < c.count; ++p) {
            const T* value = static_cast<const T*>(c.values) + c.slots[p] * c.slot_stride + d;
            F v[Strips];
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) v[s] = V::load(value + 16 * s);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const F w = V::set1(weights[r * attention_chunk + p]);
#pragma GCC unroll 4
                for (int s = 0; s < Strips; ++s) sum[r][s] = V::mul_add(w, v[s], sum[r][s]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            float* out = c.out + static_cast<std::int64_t>(row + r) * c.partial_stride + d;
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) V::store(out + 16 * s, sum[r][s]);
        }
    }

    template <typename T>
    static void mix_tail(const AttentionChunk& c, int row, int d, int n) {
        F sum = V::set1(0.0f);
        const float* weights = c.weights + row * attention_chunk;
        for (int p = 0; p < c.count; ++p) {
            const T* value = static_cast<const T*>(c.values) + c.slots[p] * c.slot_stride + d;
            sum = V::mul_add(V::set1(weights[p]), V::load_n(value, n), sum);
        }
        V::store_n(c.out + static_cast<std::int64_t>(row) * c.partial_stride + d, sum, n);
    }

    template <typename T, int R>
    static void mix_rows(const AttentionChunk& c, int row) {
        int d = 0;
        for (; d + 64 <= c.head_dim; d += 64) mix_strip<T, R, 4>(c, row, d);
        for (; d + 16 <= c.head_dim; d += 16) mix_strip<T, R, 1>(c, row, d);
        if (d == c.head_dim) return;
        for (int r = 0; r < R; ++r) mix_tail<T>(c, row + r, d, c.head_dim - d);
    }

    template <typename T>
    static void dot_chunk(const AttentionChunk& c) {
        int r = 0;
        if constexpr (V::dot_rows >= 3) {
            for (; r + 3 <= c.rows; r += 3) dot_rows<T, 3>(c, r);
            if (c.rows - r == 2) dot_rows<T, 2>(c, r), r += 2;
        }
        for (; r < c.rows; ++r) dot_rows<T, 1>(c, r);
    }

    static void score_chunk(const AttentionChunk& c) {
        c.halves ? dot_chunk<std::uint16_t>(c) : dot_chunk<float>(c);
        for (int r = 0; r < c.rows; ++r) {
            soften(c, c.weights + r * attention_chunk,
                   c.out + static_cast<std::int64_t>(r) * c.partial_stride);
        }
    }

    template <typename T>
    static void mix(const AttentionChunk& c) {
        int r = 0;
        if constexpr (V::mix_rows >= 4) {
            for (; r + 4 <= c.rows; r += 4) mix_rows<T, 4>(c, r);
            if (c.rows - r == 3) return mix_rows<T, 3>(c, r);
            if (c.rows - r == 2) return mix_rows<T, 2>(c, r);
        }
        for (; r < c.rows; ++r) mix_rows<T, 1>(c, r);
    }

    static void mix_chunk(const AttentionChunk& c) {
        c.halves ? mix<std::uint16_t>(c) : mix<float>(c);
    }

    static void join_chunks(const float* partials, int chunks, std::int64_t step, int head_dim, float* out) {
        float top = -__builtin_inff();
        for (int c = 0; c < chunks; ++c) {
            const float m = partials[c * step + head_dim];
            top = m > top ? m : top;
        }
        float total = 0.0f;
        float factor[16];
        for (int first = 0; first < chunks; first += 16) {
            const int count = chunks - first < 16 ? chunks - first : 16;
            for (int j = 0; j < 16; ++j) {
                factor[j] = j < count ? partials[(first + j) * step + head_dim] : -__builtin_inff();
            }
            V::store(factor, exp(V::add(V::load(factor), V::set1(-top))));
            for (int j = 0; j < count; ++j) {
                const float* partial = partials + (first + j) * step;
                total += factor[j] * partial[head_dim + 1];
                const F weight = V::set1(factor[j]);
                for (int d = 0; d < head_dim; d += 16) {
                    const F before = first + j == 0 ? V::set1(0.0f) : load_row(out, d, head_dim);
                    store_row(out, d, head_dim, V::mul_add(weight, load_row(partial, d, head_dim), before));
                }
            }
        }
        const F inverse = V::set1(1.0f / total);
        for (int d = 0; d < head_dim; d += 16) {
            store_row(out, d, head_dim, V::mul(load_row(out, d, head_dim), inverse));
        }
    }

    static float forward_kl(const float* teacher, float ts, const float* student, float ss, int n,
                            float weight, float* gradient) {
        // A masked token (-inf) has no mass and must not turn 0 * inf into NaN.
        const F floor = V::set1(-100.0f);
        F total = V::set1(0.0f);
        for (int i = 0; i < n; i += 16) {
            const F t = V::max(V::sub(load_row(teacher, i, n), V::set1(ts)), floor);
            const F s = V::max(V::sub(load_row(student, i, n), V::set1(ss)), floor);
            F p = exp(t);
            const F q = exp(s);
            if (n - i < 16) {
                float lanes[16];
                V::store(lanes, p);
                for (int j = n - i; j < 16; ++j) lanes[j] = 0.0f;
                p = V::load(lanes);
            }
            total = V::mul_add(p, V::sub(t, s), total);
            store_row(gradient, i, n, V::mul(V::sub(q, p), V::set1(weight)));
        }
        return V::sum(total);
    }

    static constexpr RowKernels table() {
        return {rms_norm,   silu_mul,    add,        round_to_bf16, to_f16,      rope,         largest,
                sum_exp,    above,       take_above, take_places,   count_above, take_between, take_marked,
                take_owned, score_chunk, mix_chunk,  join_chunks,   forward_kl,  exp_scaled};
    }
};

}  // namespace draftscope::kernels
