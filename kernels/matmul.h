#pragma once

#include <span>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// y[M, N] = x[M, K] * W[N, K]^T (+ bias[N] when not null). Weights are read once for all M rows.
void matmul(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> y,
            const float* bias = nullptr);

/// Prefetch hint: the matmul() after the next one reads `weights`; null = unknown. Waiting threads start to
/// fetch them. The hint holds until the next call.
void prefetch_next(Exec& exec, const Matrix* weights);

/// Computes selected blocks of matmul()'s outputs, with the same bits. Block b is outputs 16 b to 16 b + 15.
/// The order of y's columns [M, 16 * blocks] is that of `blocks`, which is ascending. Columns of outputs
/// beyond N are unchanged.
void matmul_blocks(Exec& exec, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y);

}  // namespace draftscope::kernels
