#pragma once

#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// out[m] = log(sum_j exp(x[m, j])), summed in a fixed order.
void logsumexp(Exec& exec, Rows<const float> x, std::span<float> out);

/// Finds the k largest values of each row, descending, ties to the lower index. Requires k <= cols. Both ids
/// and values are [M, k].
void topk(Exec& exec, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values);

/// The k values of topk() in ascending index order. Cheaper, because nothing is sorted. ids is [M, k].
void topk_set(Exec& exec, Rows<const float> x, int k, Rows<std::int32_t> ids);

/// Index of the largest value of each row, ties to the lower index.
void argmax(Exec& exec, Rows<const float> x, std::span<std::int32_t> out);

}  // namespace draftscope::kernels
