#pragma once

#include "kernels/cpu/vector/row_kernels.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// The row kernels of an Exec's instruction set.
inline const RowKernels& row_kernels(const Exec& exec) {
#if defined(DS_KERNELS_X86)
    if (exec.isa() >= Isa::avx512) return row_kernels_avx512;
    if (exec.isa() >= Isa::avx2) return row_kernels_avx2;
#endif
    (void)exec;
    return row_kernels_portable;
}

}  // namespace draftscope::kernels
