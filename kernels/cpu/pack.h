#pragma once

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Packs every row of `matrix` (f32, bf16 or int8), a block of 16 rows at a time. Threads take blocks in
/// turns, so that a file behind `source` is read from front to back.
void pack_blocks(Exec& exec, Matrix& matrix, RowSource source);

}  // namespace draftscope::kernels
