#pragma once

#include <span>

#include "kernels/matrix.h"

/// Products fused with the ops around them in a decoder layer. Each thread normalises the input that it
/// quantises, and finishes the outputs that it computes. The results are bit-identical to the separate ops.
namespace draftscope::kernels {

/// rms_norm() of a product's input; an empty `weight` means no norm.
struct PreNorm {
    std::span<const float> weight;
    float eps = 0;
};

/// y[M, N] = norm(x) W^T (+ bias[N] when not null).
void norm_matmul(Exec& exec, const Matrix& weights, const PreNorm& norm, Rows<const float> x, Rows<float> y,
                 const float* bias = nullptr);

/// y[M, 2 F] = norm(x) W^T for gate and up stacked in one matrix [2 F, K]. The first F columns of y then
/// become silu(gate) * up; the others are scratch.
void norm_matmul_silu(Exec& exec, const Matrix& gate_up, const PreNorm& norm, Rows<const float> x,
                      Rows<float> y);
/// Calls prefetch_next() for the weights that norm_matmul_silu() reads.
void prefetch_next_gated(Exec& exec, const Matrix& gate_up);

/// sum[M, N] += x W^T; `product` [M, N] is scratch.
void matmul_add(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> product, Rows<float> sum);

}  // namespace draftscope::kernels
