#pragma once

#include <cstdint>

#include "kernels/ops/matrix.h"

/// Norms, activations, casts and copies of rows.
namespace draftscope::kernels {

/// Divides each group of `width` values by its root mean square and multiplies it by `weight` [width]. The
/// groups of a row are contiguous from x on.
struct RmsNormOp {
    const float* x = nullptr;  ///< [rows, x_stride]
    std::int64_t x_stride = 0;
    int rows = 0, groups = 1, width = 0;
    const float* weight = nullptr;
    float eps = 0;
    float* y = nullptr;  ///< [rows, y_stride] or null; may be x
    std::int64_t y_stride = 0;
    bool add = false;     ///< y += instead of y =
    Activations half;     ///< [rows, half_stride] or null: the result, groups * width values per row
    int half_stride = 0;  ///< padding columns up to half_columns are set to zero
    int half_columns = 0;
};

/// Element-wise function applied to an op's input.
enum class Activation { none, silu, relu };

/// y = activation(x) as activations. Columns cols .. y_columns - 1 become zero.
struct CastOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    Activations y;
    std::int64_t y_stride = 0;
    int y_columns = 0;
    Activation activation = Activation::none;
};

/// y = base + activation(x), as in a residual block.
struct AddOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    Activation activation = Activation::none;
    Activations base;  ///< [rows, base_stride]; null = add to y
    std::int64_t base_stride = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

/// y = silu(gate) * up for rows [gate | up] of 2 * width values, padded with zeros.
struct SiluMulOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, width = 0;
    Activations y;
    int y_stride = 0;
};

/// Copies f32 rows: to[r] = from[rows[r]], or from[r] if `rows` is null.
struct CopyRowsOp {
    const float* from = nullptr;
    std::int64_t from_stride = 0;
    const std::int32_t* rows = nullptr;
    int count = 0, cols = 0;
    float* to = nullptr;
    std::int64_t to_stride = 0;
};

}  // namespace draftscope::kernels
