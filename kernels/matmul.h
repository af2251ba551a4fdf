#pragma once

#include <span>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// y[M, N] = x[M, K] * W[N, K]^T (+ bias[N] when not null). Weights are read once for all M rows.
void matmul(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> y,
            const float* bias = nullptr);

/// Says that the matmul() after the next one reads `weights` (null: nothing is known of it): threads that
/// wait for others begin to fetch them. Holds until the next call of this.
void expect_matmul(Exec& exec, const Matrix* weights);

/// The same for chosen outputs: block b is outputs 16 b to 16 b + 15. y is [M, 16 * blocks], in the order of
/// `blocks`, which rise; columns of outputs past N are left as they were. Bit-identical to those outputs of
/// matmul.
void matmul_blocks(Exec& exec, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y);

}  // namespace draftscope::kernels
