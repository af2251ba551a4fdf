#pragma once

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Packs every row of `matrix` (f32, bf16 or int8) in blocks of 16 rows. Threads take blocks in turn, so that
/// a file that `source` reads is read sequentially.
void pack_blocks(ThreadPool& pool, Matrix& matrix, RowSource source);

}  // namespace draftscope::kernels
