#include "kernels/cpu/matmul/matmul_avx2.h"
#include "kernels/cpu/matmul/matmul_bf16_fma.h"

namespace draftscope::kernels {

// Without VNNI, 512-bit byte products are no faster than 256-bit ones, so integers use the AVX2 path.
const MatmulKernels matmul_kernels_avx512 = {
    TileWalk<F32Tile>::run, TileWalk<Bf16FmaTile>::run, matmul_int8_avx2,
    matmul_int4_avx2,       matmul_int4_symmetric_avx2, false,
    matmul_quantise_avx2,   matmul_quantise_int4_avx2,  nullptr};

}  // namespace draftscope::kernels
