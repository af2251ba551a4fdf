#pragma once

#include <span>

#include "kernels/matrix.h"

/// Products with what stands before and after them in a decoder layer, each one op: every thread norms what
/// it is about to quantise, and finishes the outputs that it has just made. Bit-identical to the plain ops
/// one after the other.
namespace draftscope::kernels {

/// rms_norm() of a product's input; none where `weight` is empty.
struct NormBefore {
    std::span<const float> weight;
    float eps = 0;
};

/// y[M, N] = norm(x) W^T (+ bias[N] when not null).
void norm_matmul(Exec& exec, const Matrix& weights, const NormBefore& norm, Rows<const float> x,
                 Rows<float> y, const float* bias = nullptr);

/// Of gate and up, stacked in one matrix [2 F, K]: the first F columns of y[M, 2 F] become silu(gate) * up,
/// the others are scratch.
void norm_matmul_silu(Exec& exec, const Matrix& gate_up, const NormBefore& norm, Rows<const float> x,
                      Rows<float> y);
/// expect_matmul() of what norm_matmul_silu() reads.
void expect_gated(Exec& exec, const Matrix& gate_up);

/// sum[M, N] += x W^T; `product` [M, N] is scratch.
void matmul_add(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> product, Rows<float> sum);

}  // namespace draftscope::kernels
