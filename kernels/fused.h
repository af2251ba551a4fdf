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

/// out[M, F] = silu(gate) * up, where [gate | up] = norm(x) W^T. Gate and up are stacked in one matrix [2 F,
/// K]. y[M, 2 F] is scratch, and `out` may be its first F columns.
void norm_matmul_silu(Exec& exec, const Matrix& gate_up, const PreNorm& norm, Rows<const float> x,
                      Rows<float> y, Rows<float> out);
/// Calls prefetch_next() for the weights that norm_matmul_silu() reads.
void prefetch_next_gated(Exec& exec, const Matrix& gate_up);

/// sum[M, N] += x W^T; `product` [M, N] is scratch.
void matmul_add(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> product, Rows<float> sum);

}  // namespace draftscope::kernels
