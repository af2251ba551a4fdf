#include "kernels/cpu/vector/row_kernels_impl.h"
#include "kernels/cpu/vector/vec_portable.h"

namespace draftscope::kernels {

const RowKernels row_kernels_portable = RowKernelsOf<VecPortable>::table();

}  // namespace draftscope::kernels
