#pragma once

#include <cstdint>

#include "kernels/ops/matrix.h"

/// Matrix products, and gathering matrix rows.
namespace draftscope::kernels {

/// y[m] = x[m] W^T (+ bias), for m < rows. With `accumulate`, the product is added to y.
struct MatmulOp {
    DeviceMatrix weights;
    const half_t* x = nullptr;  ///< [rows, weights.stride]
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

/// Gathers matrix rows: to[i] = from[rows[i]].
struct GatherOp {
    DeviceMatrix from;
    const std::int32_t* rows = nullptr;  ///< [count] rows of `from`
    int count = 0;
    half_t* to = nullptr;  ///< [count, from.stride]
};

}  // namespace draftscope::kernels
