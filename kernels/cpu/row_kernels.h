#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

/// The per-row work of every op but matmul, one set a vector width. Plain pointers only: these run inside
/// files compiled for one instruction set, where no inline function of a shared header may be emitted.
namespace draftscope::kernels {

inline constexpr int attention_chunk = 128;  ///< logical positions that share one partial softmax

/// Rows of queries against blocks of the keys of one key/value head, one behind the other.
struct ScoreTile {
    const float* const* q = nullptr;  ///< [rows], each [head_dim]
    float* const* scores = nullptr;   ///< [rows], each [blocks * key_lanes]
    int rows = 0;
    const void* keys = nullptr;     ///< of the first block, f32 or fp16: [head_dim, key_lanes]
    bool halves = false;            ///< they, and the values, are fp16
    std::int64_t block_stride = 0;  ///< values between two blocks
    int blocks = 0;
    int head_dim = 0;
    /// Row of the first slot, where keys and values come from memory: they are asked for ahead.
    const void* fetch_values = nullptr;
    std::int64_t value_stride = 0;
};

/// Rows of softmax weights against the values that they share: positions [first, last).
struct MixTile {
    const float* const* weights = nullptr;  ///< [rows], each of all positions
    float* const* out = nullptr;  ///< [rows], each [head_dim]: unnormalised; added to unless `first` is 0
    int rows = 0;
    const void* values = nullptr;  ///< of this key/value head, f32 or fp16
    bool halves = false;
    std::int64_t stride = 0;              ///< values between two slots
    const std::int32_t* slots = nullptr;  ///< of each position
    int first = 0, last = 0;
    int head_dim = 0;
};

struct RowKernels {
    void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
    void (*silu_mul)(const float* gate, const float* up, int n, float* y);
    void (*add)(const float* x, int n, float* y);
    void (*round_to_bf16)(float* x, int n);
    /// Nearest fp16, ties to even, at most 65504 in size; a NaN stays one.
    void (*to_f16)(const float* x, int n, std::uint16_t* y);
    /// x [heads, 2 * half] in place.
    void (*rope)(float* x, int heads, int half, const float* cos, const float* sin);
    float (*largest)(const float* x, int n);
    /// sum_j exp(x[j] - shift)
    float (*sum_exp)(const float* x, int n, float shift);
    /// Indices above `limit` among x[0, n), ascending, at most `room`; `next` is where to go on.
    int (*above)(const float* x, int first, int n, float limit, std::int32_t* out, int room, int* next);
    /// The values above `limit` among x[0, n) and their places plus `first`, in order; returns how many. Both
    /// lists have room for n + 16, of which any part may be written.
    int (*take_above)(const float* x, int n, int first, float limit, float* values, std::int32_t* places);
    /// Of values[0, n), none NaN, those above `limit` and the first `ties` that equal it: their places, in
    /// order, `most` in all.
    void (*take_places)(const float* values, const std::int32_t* places, int n, float limit, int ties,
                        int most, std::int32_t* out);
    /// How many of x[0, n) are above `limit`.
    int (*count_above)(const float* x, int n, float limit);
    /// The values above `low` but not above `high` among x[0, n), in order; returns how many. `values` has
    /// room for 16 more than that.
    int (*take_between)(const float* x, int n, float low, float high, float* values);
    /// Places at which any of `tables` tables [tables, n] is not 0, rising; returns how many. `out` has room
    /// for 16 more.
    int (*take_marked)(const std::uint8_t* marks, int n, int tables, std::int32_t* out);
    /// Those of x[0, n) whose owners have `bit`, in order; returns how many. `out` has room for 16 more.
    int (*take_owned)(const float* x, const std::uint8_t* owners, std::uint8_t bit, int n, float* out);
    /// Every row's product with every key of the blocks.
    void (*score_blocks)(const ScoreTile& tile);
    /// Scores become 2^(score * scale / ln 2 - maximum); `maximum_and_sum` gets that maximum and what they
    /// add up to. `scores` has room for whole vectors.
    void (*soften)(float* scores, int count, float scale, float* maximum_and_sum);
    void (*mix)(const MixTile& tile);
    /// out[head_dim] = softmax-weighted values from `chunks` partials, `partial_step` floats apart: output,
    /// maximum, sum.
    void (*join_chunks)(const float* partials, int chunks, std::int64_t partial_step, int head_dim,
                        float* out);
    /// gradient[j] = (exp(student[j] - ss) - exp(teacher[j] - ts)) * weight, in place of the student's if
    /// they are the same row; returns sum_j exp(teacher[j] - ts) ((teacher[j] - ts) - (student[j] - ss)).
    float (*forward_kl)(const float* teacher, float ts, const float* student, float ss, int n, float weight,
                        float* gradient);
    /// y[j] = exp((x[j] - shift) * scale), 0 for NaN.
    void (*exp_scaled)(const float* x, int n, float shift, float scale, float* y);
};

extern const RowKernels row_kernels_portable;
extern const RowKernels row_kernels_avx2;
extern const RowKernels row_kernels_avx512;

}  // namespace draftscope::kernels
