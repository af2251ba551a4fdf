#pragma once

#include <cstdint>

#include "kernels/gemm.h"

namespace draftscope::kernels {

/// One block of a dense product: C [m, n] = op(A) op(B), or C += op(A) op(B). Strides are in floats.
struct GemmBlock {
    Operand a_as = Operand::plain, b_as = Operand::plain;
    int m = 0, n = 0, k = 0;
    const float* a = nullptr;
    std::int64_t a_stride = 0;
    const float* b = nullptr;
    std::int64_t b_stride = 0;
    float* c = nullptr;
    std::int64_t c_stride = 0;
    bool accumulate = false;
};
/// Computes the block with plain loops, for builds without oneDNN.
void gemm_block(const GemmBlock& block);

}  // namespace draftscope::kernels
