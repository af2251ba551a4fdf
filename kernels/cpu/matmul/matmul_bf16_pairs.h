#pragma once

#include "kernels/cpu/matmul/matmul_avx512_common.h"

namespace draftscope::kernels {
namespace {

/// Converts one row to pairs of bf16, rounded to nearest.
inline void to_bf16_pairs(const float* x, int k, std::uint32_t* out) {
    auto* values = reinterpret_cast<std::uint16_t*>(out);
    const int padded = (k + 1) / 2 * 2;
    for (int i = 0; i < padded; i += 16) {
        const auto in = static_cast<__mmask16>(k - i >= 16 ? 0xffffu : (1u << (k - i)) - 1u);
        const auto keep = static_cast<__mmask16>(padded - i >= 16 ? 0xffffu : (1u << (padded - i)) - 1u);
        const auto rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(in, x + i));
        _mm256_mask_storeu_epi16(values + i, keep, reinterpret_cast<__m256i>(rounded));
    }
}

}  // namespace
}  // namespace draftscope::kernels
