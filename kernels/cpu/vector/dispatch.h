#pragma once

#include "kernels/cpu/vector/row_kernels.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// The row kernels of an ThreadPool's instruction set.
inline const RowKernels& row_kernels(const ThreadPool& pool) {
#if defined(DS_KERNELS_X86)
    if (pool.isa() >= Isa::avx512) return row_kernels_avx512;
    if (pool.isa() >= Isa::avx2) return row_kernels_avx2;
#endif
    (void)pool;
    return row_kernels_portable;
}

}  // namespace draftscope::kernels
