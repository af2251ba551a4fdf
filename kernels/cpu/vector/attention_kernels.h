#pragma once

#include "kernels/cpu/vector/row_kernels.h"
#include "kernels/cpu/vector/vec_math.h"

/// Attention kernels over one vector type. The sum of a (row, key) or (row, value) pair never depends on the
/// other rows of a tile. Scores are summed over the head's dimensions, outputs over the positions, both
/// ascending.
namespace draftscope::kernels {

template <typename V>
struct AttentionKernelsOf : VecMath<V> {
    using F = typename V::F;
    using VecMath<V>::load_row, VecMath<V>::store_row, VecMath<V>::exp2_below_one;

    /// Prefetches keys and values, a line of each at a time.
    template <typename T>
    struct Fetcher {
        static constexpr int line = 64 / static_cast<int>(sizeof(T));

        Fetcher(const ScoreTile& t, int block)
            : value(static_cast<const T*>(t.fetch_values) +
                    static_cast<std::int64_t>(block) * key_lanes * t.value_stride),
              stride(t.value_stride),
              width(t.head_dim) {}
        void next_value() {
            __builtin_prefetch(value + at, 0, 3);
            at += line;
            if (at < width) return;
            at = 0;
            value += stride;
        }

        const T* value;
        std::int64_t stride;
        int width;
        int at = 0;
    };

    /// R rows against B blocks of keys: each load of one dimension of 16 keys serves R rows.
    template <typename T, int R, int B, bool Fetch>
    static void dot_tile(const ScoreTile& t, int row, int block) {
        const T* keys = static_cast<const T*>(t.keys) + block * t.block_stride;
        const float* q = t.q + std::int64_t{row} * query_part;
        Fetcher<T> fetcher(t, block);
        const bool more = block + 2 * B <= t.blocks;
        F sum[R][B];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int b = 0; b < B; ++b) sum[r][b] = V::set1(0.0f);
        }
        for (int part = 0; part < t.head_dim; part += query_part) {
            const int count = t.head_dim - part < query_part ? t.head_dim - part : query_part;
            for (int d = 0; d < count; ++d, keys += key_lanes) {
                if constexpr (Fetch) {
                    constexpr int dims = Fetcher<T>::line / key_lanes;
                    for (int b = 0; d % dims == 0 && b < B; ++b) {
                        if (more) __builtin_prefetch(keys + (b + B) * t.block_stride, 0, 3);
                        fetcher.next_value();
                    }
                }
                F k[B];
#pragma GCC unroll 4
                for (int b = 0; b < B; ++b) {
                    k[b] = V::load(keys + b * t.block_stride);
                    V::hold(k[b]);
                }
#pragma GCC unroll 16
                for (int r = 0; r < R; ++r) {
                    const F a = V::set1(q[r * query_part + d]);
#pragma GCC unroll 4
                    for (int b = 0; b < B; ++b) sum[r][b] = V::mul_add(a, k[b], sum[r][b]);
                }
            }
            q += std::int64_t{t.rows} * query_part;
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            float* out = t.scores + (row + r) * t.score_stride + block * key_lanes;
#pragma GCC unroll 4
            for (int b = 0; b < B; ++b) V::store(out + b * key_lanes, sum[r][b]);
        }
    }

    template <typename T, int R>
    static void dot_rows(const ScoreTile& t, int row) {
        constexpr int blocks = R <= 2 ? V::narrow_blocks : V::wide_blocks;
        const bool fetch = t.fetch_values != nullptr && row == 0;
        int b = 0;
        for (; b + blocks <= t.blocks; b += blocks)
            fetch ? dot_tile<T, R, blocks, true>(t, row, b) : dot_tile<T, R, blocks, false>(t, row, b);
        for (; b < t.blocks; ++b)
            fetch ? dot_tile<T, R, 1, true>(t, row, b) : dot_tile<T, R, 1, false>(t, row, b);
    }

    template <typename T>
    static void dot_all(const ScoreTile& t) {
        int r = 0;
        if constexpr (V::max_query_rows >= 12) {
            for (; r + 12 <= t.rows; r += 12) dot_rows<T, 12>(t, r);
        }
        if constexpr (V::max_query_rows >= 6) {
            for (; r + 6 <= t.rows; r += 6) dot_rows<T, 6>(t, r);
            for (; r + 3 <= t.rows; r += 3) dot_rows<T, 3>(t, r);
        }
        for (; r + 2 <= t.rows; r += 2) dot_rows<T, 2>(t, r);
        if (r < t.rows) dot_rows<T, 1>(t, r);
    }

    static void score_blocks(const ScoreTile& t) {
        t.fp16 ? dot_all<std::uint16_t>(t) : dot_all<float>(t);
    }

    /// Works in units of ln 2, so that 2^x needs no other factor. Rows are interleaved to hide latencies.
    template <int R>
    static void exp2_rows(float* scores, int count, float scale, float* maximum_and_sum, std::int64_t step) {
        constexpr float log2_e = 1.44269504f;
        const int padded = (count + 15) / 16 * 16;
        const float factor = scale * log2_e;
        const F times = V::set1(factor), low = V::set1(-127.0f);
        F best[R], minus[R], total[R];
        for (int r = 0; r < R; ++r) {
            float* row = scores + r * attention_chunk;
            for (int p = count; p < padded; ++p) row[p] = -__builtin_inff();
            best[r] = V::load(row);
        }
        for (int p = 16; p < padded; p += 16) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) best[r] = V::max(V::load(scores + r * attention_chunk + p), best[r]);
        }
        for (int r = 0; r < R; ++r) {
            const float top = V::largest(best[r]) * factor;
            maximum_and_sum[r * step] = top;
            minus[r] = V::set1(-top);
            total[r] = V::set1(0.0f);
        }
        for (int p = 0; p < padded; p += 16) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                float* at = scores + r * attention_chunk + p;
                const F e = exp2_below_one(V::max(V::mul_add(V::load(at), times, minus[r]), low));
                V::store(at, e);
                total[r] = V::add(total[r], e);
            }
        }
        for (int r = 0; r < R; ++r) maximum_and_sum[r * step + 1] = V::sum(total[r]);
    }

    static void exp2_scores(float* scores, int rows, int count, float scale, float* maximum_and_sum,
                            std::int64_t step) {
        int r = 0;
        const auto run = [&]<int R>() {
            for (; r + R <= rows; r += R)
                exp2_rows<R>(scores + r * attention_chunk, count, scale, maximum_and_sum + r * step, step);
        };
        run.template operator()<4>();
        run.template operator()<3>();
        run.template operator()<2>();
        run.template operator()<1>();
    }

    /// Prefetches `Strips` vectors of the next values, and as many bytes of the next keys. Position p and
    /// dimension d are those of the values.
    template <typename T, int Strips>
    static void fetch_next(const MixTile& t, int p, int d) {
        const std::int64_t block = p / key_lanes * t.stride * key_lanes + p % key_lanes * t.head_dim + d;
        const T* key = static_cast<const T*>(t.next_keys) + block;
        const T* value = static_cast<const T*>(t.next_values) + p * t.stride + d;
        constexpr int line = 64 / static_cast<int>(sizeof(T));
        for (int i = 0; i < 16 * Strips; i += line) {
            __builtin_prefetch(key + i, 0, 2);
            __builtin_prefetch(value + i, 0, 2);
        }
    }

    /// R rows, `Strips` vectors starting at dimension d: each load of a value serves R rows.
    template <typename T, int R, int Strips, bool Fetch>
    static void mix_strip(const MixTile& t, int row, int d) {
        F sum[R][Strips];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const float* out = t.out[row + r] + d;
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) sum[r][s] = t.first == 0 ? V::set1(0.0f) : V::load(out + 16 * s);
        }
        const float* weights = t.weights + std::int64_t{row} * attention_chunk;
        for (int p = t.first; p < t.last; ++p) {
            if constexpr (Fetch) {
                if (p < t.next_positions) fetch_next<T, Strips>(t, p, d);
            }
            const T* value = static_cast<const T*>(t.values) + t.slots[p] * t.stride + d;
            F v[Strips];
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) {
                v[s] = V::load(value + 16 * s);
                V::hold(v[s]);
            }
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const F w = V::set1(weights[r * attention_chunk + p]);
#pragma GCC unroll 4
                for (int s = 0; s < Strips; ++s) sum[r][s] = V::mul_add(w, v[s], sum[r][s]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            float* out = t.out[row + r] + d;
#pragma GCC unroll 4
            for (int s = 0; s < Strips; ++s) V::store(out + 16 * s, sum[r][s]);
        }
    }

    template <typename T>
    static void mix_rest(const MixTile& t, int row, int d, int n) {
        F sum = t.first == 0 ? V::set1(0.0f) : V::load_n(t.out[row] + d, n);
        for (int p = t.first; p < t.last; ++p) {
            const T* value = static_cast<const T*>(t.values) + t.slots[p] * t.stride + d;
            sum = V::mul_add(V::set1(t.weights[row * attention_chunk + p]), V::load_n(value, n), sum);
        }
        V::store_n(t.out[row] + d, sum, n);
    }

    template <typename T, int R, int Strips>
    static void mix_rows(const MixTile& t, int row) {
        const bool fetch = row == 0 && t.next_positions > 0;
        int d = 0;
        for (; d + 16 * Strips <= t.head_dim; d += 16 * Strips)
            fetch ? mix_strip<T, R, Strips, true>(t, row, d) : mix_strip<T, R, Strips, false>(t, row, d);
        for (; d + 16 <= t.head_dim; d += 16) mix_strip<T, R, 1, false>(t, row, d);
        if (d == t.head_dim) return;
        for (int r = 0; r < R; ++r) mix_rest<T>(t, row + r, d, t.head_dim - d);
    }

    template <typename T>
    static void mix_all(const MixTile& t) {
        int r = 0;
        if constexpr (V::max_query_rows >= 12) {
            for (; r + 12 <= t.rows; r += 12) mix_rows<T, 12, 2>(t, r);
        }
        constexpr int strips = V::max_query_rows >= 12 ? 4 : 1, few_row_strips = strips == 4 ? 4 : 2;
        if constexpr (V::max_query_rows >= 6) {
            for (; r + 6 <= t.rows; r += 6) mix_rows<T, 6, strips>(t, r);
            for (; r + 3 <= t.rows; r += 3) mix_rows<T, 3, strips>(t, r);
            for (; r + 2 <= t.rows; r += 2) mix_rows<T, 2, few_row_strips>(t, r);
        }
        for (; r < t.rows; ++r) mix_rows<T, 1, few_row_strips>(t, r);
    }

    static void mix(const MixTile& t) {
        t.fp16 ? mix_all<std::uint16_t>(t) : mix_all<float>(t);
    }

    static void join_chunks(const float* partials, int chunks, std::int64_t step, int head_dim, float* out) {
        float top = -__builtin_inff();
        for (int c = 0; c < chunks; ++c) {
            const float m = partials[c * step + head_dim];
            top = m > top ? m : top;
        }
        float total = 0.0f;
        float factor[16] = {};
        for (int first = 0; first < chunks; first += 16) {
            const int count = chunks - first < 16 ? chunks - first : 16;
            for (int j = 0; j < count; ++j) factor[j] = partials[(first + j) * step + head_dim];
            const F above = V::max(V::add(V::load(factor), V::set1(-top)), V::set1(-127.0f));
            V::store(factor, exp2_below_one(above));
            for (int j = 0; j < count; ++j) total += factor[j] * partials[(first + j) * step + head_dim + 1];
            // The last chunk divides by the total.
            const F inverse = V::set1(first + count == chunks ? 1.0f / total : 1.0f);
            for (int d = 0; d < head_dim; d += 16) {
                F sum = first == 0 ? V::set1(0.0f) : load_row(out, d, head_dim);
                for (int j = 0; j < count; ++j) {
                    const float* partial = partials + (first + j) * step;
                    sum = V::mul_add(V::set1(factor[j]), load_row(partial, d, head_dim), sum);
                }
                store_row(out, d, head_dim, V::mul(sum, inverse));
            }
        }
    }
};

}  // namespace draftscope::kernels
