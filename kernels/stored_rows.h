#pragma once

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Where row `row` of K bf16 values lies, at any alignment. Called from pool threads.
using Bf16Source = FunctionRef<const void*(int row)>;

/// Matrix::pack() in bf16 of rows that are stored in bf16: moved to their places, at memory's speed.
Matrix pack_bf16(Exec& exec, int n, int k, Bf16Source stored);

}  // namespace draftscope::kernels
