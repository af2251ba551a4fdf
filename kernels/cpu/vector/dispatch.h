#pragma once

#include "kernels/cpu/vector/row_kernels.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Returns the row kernels of a pool's instruction set.
const RowKernels& row_kernels(const ThreadPool& pool);

}  // namespace draftscope::kernels
