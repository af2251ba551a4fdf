#pragma once

#include "kernels/cpu/matmul/matmul_kernels.h"

namespace draftscope::kernels {

/// The AVX2 paths. AVX-512 without VNNI shares the integer ones, AVX-VNNI the float ones.
void matmul_f32_avx2(const MatmulWork& work, int begin, int end);
void matmul_bf16_avx2(const MatmulWork& work, int begin, int end);
void matmul_int8_avx2(const MatmulWork& work, int begin, int end);
void matmul_int4_avx2(const MatmulWork& work, int begin, int end);
void matmul_int4_symmetric_avx2(const MatmulWork& work, int begin, int end);
void matmul_quantise_avx2(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start);
void matmul_quantise_int4_avx2(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start,
                               float* sum);

}  // namespace draftscope::kernels
