#pragma once

#include <cstdint>

#include "kernels/ops/kv_layout.h"

/// Per-row kernels of every op except matmul, one set per vector width. Plain pointers only: files compiled
/// for one instruction set must not emit inline functions of shared headers.
namespace draftscope::kernels {

inline constexpr int attention_chunk = 128;  ///< logical positions that share one partial softmax
inline constexpr int query_part = 64;        ///< dimensions of a query that are stored together

/// Rows of queries against contiguous blocks of keys of one key/value head.
struct ScoreTile {
    const float* q = nullptr;  ///< [ceil(head_dim / query_part), rows, query_part]
    float* scores = nullptr;   ///< [rows, score_stride]
    std::int64_t score_stride = 0;
    int rows = 0;
    const void* keys = nullptr;     ///< of the first block, f32 or fp16: [head_dim, key_lanes]
    bool fp16 = false;              ///< whether keys and values are fp16
    std::int64_t block_stride = 0;  ///< values between two blocks
    int blocks = 0;
    int head_dim = 0;
    /// Value row of the first slot. If set, keys and values are prefetched from memory.
    const void* fetch_values = nullptr;
    std::int64_t value_stride = 0;
};

/// Rows of softmax weights against the values that they share: positions [first, last).
struct MixTile {
    const float* weights = nullptr;  ///< [rows, attention_chunk]
    float* const* out = nullptr;     ///< [rows], each [head_dim], unnormalised; added to unless `first` is 0
    int rows = 0;
    const void* values = nullptr;  ///< of this key/value head, f32 or fp16
    bool fp16 = false;
    std::int64_t stride = 0;              ///< values between two slots
    const std::int32_t* slots = nullptr;  ///< slot of each position
    int first = 0, last = 0;
    int head_dim = 0;
    /// Keys and values that are read next: the first block and row of a chunk, or null. They are prefetched
    /// from memory, as many positions as this tile has at most.
    const void* next_keys = nullptr;
    const void* next_values = nullptr;
    int next_positions = 0;
};

struct RowKernels {
    void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
    void (*silu_mul)(const float* gate, const float* up, int n, float* y);
    void (*add)(const float* x, int n, float* y);
    void (*cast_to_bf16)(float* x, int n);
    /// Nearest fp16, ties to even, clamped to +-65504; NaN stays NaN.
    void (*to_f16)(const float* x, int n, std::uint16_t* y);
    /// RoPE of x [heads, 2 * half] in place.
    void (*rope)(float* x, int heads, int half, const float* cos, const float* sin);
    float (*largest)(const float* x, int n);
    /// sum_j exp((x[j] - shift) * scale)
    float (*sum_exp)(const float* x, int n, float shift, float scale);
    /// Finds indices above `limit` in x[0, n), ascending, at most `max_found`; sets `next` to continue from.
    int (*above)(const float* x, int first, int n, float limit, std::int32_t* out, int max_found, int* next);
    /// Finds the values above `limit` in x[0, n) and their indices plus `first`, in order. Returns the count.
    /// Both lists have capacity n + 16; any part of it may be written.
    int (*take_above)(const float* x, int n, int first, float limit, float* values, std::int32_t* indices);
    /// Finds the values above `limit` and the first `ties` values equal to it. Input is values[0, n), without
    /// NaN. Writes their places in order, `most` in all.
    void (*take_indices)(const float* values, const std::int32_t* indices, int n, float limit, int ties,
                         int max_found, std::int32_t* out);
    /// Counts the values of x[0, n) above `limit`.
    int (*count_above)(const float* x, int n, float limit);
    /// Finds the values of x[0, n) above `low` but not above `high`, in order. Returns the count; `values`
    /// has capacity for 16 more.
    int (*take_between)(const float* x, int n, float low, float high, float* values);
    /// Finds the places of the ones among marks[0, n), each 0 or 1, n a multiple of 32, ascending. Returns
    /// the count; `indices` has capacity n + 16. words[i] gets the marks from 32 i on, the first lowest.
    int (*take_marked)(const std::uint8_t* marks, int n, std::int32_t* indices, std::uint32_t* words);
    /// values[i] = the logit of tokens[i], none of them negative. `index` is UniqueTokensOp's.
    void (*gather_logits)(const float* logits, const std::uint64_t* index, const std::int32_t* tokens, int n,
                          float* values);
    /// Multiplies every row with every key of the blocks.
    void (*score_blocks)(const ScoreTile& tile);
    /// Replaces the scores of rows, `attention_chunk` apart, by 2^(score * scale / ln 2 - maximum).
    /// `maximum_and_sum` gets the maximum and the sum of a row's results; those of rows are `step` apart.
    void (*exp2_scores)(float* scores, int rows, int count, float scale, float* maximum_and_sum,
                        std::int64_t step);
    void (*mix)(const MixTile& tile);
    /// Merges `chunks` partials (output, maximum, sum), `partial_step` floats apart, to out[head_dim].
    void (*join_chunks)(const float* partials, int chunks, std::int64_t partial_step, int head_dim,
                        float* out);
    /// Sets y[j] = exp((x[j] - shift) * scale), 0 for NaN.
    void (*exp_scaled)(const float* x, int n, float shift, float scale, float* y);
};

extern const RowKernels row_kernels_portable;
extern const RowKernels row_kernels_avx2;
extern const RowKernels row_kernels_avx512;

}  // namespace draftscope::kernels
