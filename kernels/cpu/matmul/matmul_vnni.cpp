#include "kernels/cpu/matmul/matmul_bf16_fma.h"
#include "kernels/cpu/matmul/matmul_int4_vnni.h"
#include "kernels/cpu/matmul/matmul_int8_vnni.h"

namespace draftscope::kernels {

const MatmulKernels matmul_kernels_vnni = {TileWalk<F32Tile>::run,
                                           TileWalk<Bf16FmaTile>::run,
                                           TileWalk<Int8VnniTile>::run,
                                           TileWalk<Int4VnniTile<false>>::run,
                                           TileWalk<Int4VnniTile<true>>::run,
                                           false,
                                           quantise_row,
                                           quantise_row_int4,
                                           nullptr};

}  // namespace draftscope::kernels
