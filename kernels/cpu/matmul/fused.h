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
void norm_matmul(ThreadPool& pool, const Matrix& weights, const PreNorm& norm, Rows<const float> x,
                 Rows<float> y, const float* bias = nullptr);

/// out[M, F] = silu(gate) * up, where [gate | up] = norm(x) W^T. Gate and up are stacked in one matrix [2 F,
/// K]. y[M, 2 F] is scratch, and `out` may be its first F columns.
void norm_matmul_silu(ThreadPool& pool, const Matrix& gate_up, const PreNorm& norm, Rows<const float> x,
                      Rows<float> y, Rows<float> out);
/// Calls prefetch_next() for the weights that norm_matmul_silu() reads.
void prefetch_next_gated(ThreadPool& pool, const Matrix& gate_up);

/// sum[M, N] += x W^T; `product` [M, N] is scratch.
void matmul_add(ThreadPool& pool, const Matrix& weights, Rows<const float> x, Rows<float> product,
                Rows<float> sum);

/// Prefetch hint: the matmul() after the next one reads `weights`; null = unknown. Waiting threads start to
/// fetch them. The hint holds until the next call.
void prefetch_next(ThreadPool& pool, const Matrix* weights);

/// Computes selected blocks of matmul()'s outputs, with the same bits. Block b is outputs 16 b to 16 b + 15.
/// The order of y's columns [M, 16 * blocks] is that of `blocks`, which is ascending. Columns of outputs
/// beyond N are unchanged.
void matmul_blocks(ThreadPool& pool, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y);

}  // namespace draftscope::kernels
