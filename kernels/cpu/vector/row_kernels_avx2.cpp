#include "kernels/cpu/vector/row_kernels_impl.h"
#include "kernels/cpu/vector/vec_avx2.h"

namespace draftscope::kernels {

const RowKernels row_kernels_avx2 = RowKernelsOf<VecAvx2>::table();

}  // namespace draftscope::kernels
