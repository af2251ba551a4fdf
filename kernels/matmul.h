#pragma once

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// y[M, N] = x[M, K] * W[N, K]^T (+ bias[N] when not null). Weights are read once for all M rows.
void matmul(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> y,
            const float* bias = nullptr);

}  // namespace draftscope::kernels
