#pragma once

#include <string_view>

#include "engine/heads/head.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Returns the cost of one call that reads all of `rows`.
HeadCost matrix_cost(const kernels::Matrix& rows);

/// Checks that the LM head covers the vocabulary; an error names the head.
Status check_weights(const HeadWeights& weights, std::string_view head);
/// Returns vocab / parts, rounded up to 64 rows, at most vocab.
int vocab_fraction(int vocab, int parts);

}  // namespace draftscope
