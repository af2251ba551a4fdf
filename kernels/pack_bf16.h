#pragma once

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Returns the address of row `row` of K bf16 values, at any alignment. Pool threads call it.
using Bf16Source = FunctionRef<const void*(int row)>;

/// Packs rows that are stored in bf16, like Matrix::pack() in bf16 but at memory speed.
Matrix pack_bf16(Exec& exec, int n, int k, Bf16Source stored);

}  // namespace draftscope::kernels
