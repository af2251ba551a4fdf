#pragma once

#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Computes the rank of each listed value in its row. The rank ranks[i] is the number of values of row
/// rows[i] that are larger than column columns[i], or equal at a lower index (topk()'s order). Adjacent
/// entries of one row share one pass over it.
void token_ranks(Exec& exec, Rows<const float> x, std::span<const std::int32_t> rows,
                 std::span<const std::int32_t> columns, std::span<std::int32_t> ranks);

}  // namespace draftscope::kernels
