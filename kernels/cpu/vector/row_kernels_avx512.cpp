#include "kernels/cpu/vector/row_kernels_impl.h"
#include "kernels/cpu/vector/vec_avx512.h"

namespace draftscope::kernels {

const RowKernels row_kernels_avx512 = RowKernelsOf<VecAvx512>::table();

}  // namespace draftscope::kernels
