#pragma once

#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// ranks[i] = how many values of row rows[i] come before that of columns[i] in the order of topk(): larger
/// ones, and equal ones at a lower index. Columns of one row are counted in one pass over it when they are
/// neighbours in the list.
void ranks_of(Exec& exec, Rows<const float> x, std::span<const std::int32_t> rows,
              std::span<const std::int32_t> columns, std::span<std::int32_t> ranks);

}  // namespace draftscope::kernels
