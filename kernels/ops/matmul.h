#pragma once

#include <cstdint>

#include "kernels/ops/matrix.h"

/// Matrix products, and gathering matrix rows.
namespace draftscope::kernels {

/// y[m] = x[m] W^T (+ bias), for m < rows. With `accumulate`, the product is added to y.
struct MatmulOp {
    DeviceMatrix weights;
    Activations x;  ///< [rows, weights.stride]
    int rows = 0;
    float* y = nullptr;  ///< [rows, y_stride >= outputs]
    std::int64_t y_stride = 0;
    const float* bias = nullptr;  ///< [n] or null
    bool accumulate = false;
    /// Selected outputs: column c of y is output chosen[c], for c < *chosen_count. Null = all outputs.
    const std::int32_t* chosen = nullptr;
    const std::int32_t* chosen_count = nullptr;
    int max_chosen = 0;  ///< upper bound of *chosen_count, known when the op is enqueued
};

/// RMSNorm of `width` values per row.
struct NormSpec {
    const float* x = nullptr;  ///< [rows, x_stride]
    std::int64_t x_stride = 0;
    const float* weight = nullptr;  ///< [width]; null = no norm
    float eps = 0;
};

struct RopeStoreOp;

/// A product of a decoder layer with the ops around it. The CPU fuses them, and a GPU enqueues them one by
/// one (Backend::fused_matmul()).
struct FusedMatmulOp {
    MatmulOp product;
    /// If its x is set, its result is the product's input, and product.x is scratch.
    NormSpec norm;
    /// If set, silu(first half of the outputs) * second half is written to [rows, gated_stride], and
    /// product.y is scratch.
    Activations gated;
    int gated_stride = 0;
    // Hints of what later ops access, for prefetching.
    DeviceMatrix next;           ///< weights of the next product
    bool next_is_gated = false;  ///< whether that product is gated
    const RopeStoreOp* store = nullptr;
};

/// Gathers matrix rows: to[i] = from[rows[i]].
struct GatherOp {
    DeviceMatrix from;
    const std::int32_t* rows = nullptr;  ///< [count] rows of `from`
    int count = 0;
    half_t* to = nullptr;  ///< [count, from.stride]
};

}  // namespace draftscope::kernels
