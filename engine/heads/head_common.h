#pragma once

#include <string_view>

#include "engine/heads/head.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Returns the selection of a call's k best of `support` logits for `rows` of its rows, from `first` on.
kernels::TopKOp topk_of(const HeadCall& call, int first, int rows, const float* logits, std::int64_t stride,
                        int support);

/// Returns the cost of one call that reads all of `rows`.
HeadCost matrix_cost(const kernels::Matrix& rows);

/// Checks that the LM head covers the vocabulary; an error names the head.
Status check_weights(const HeadWeights& weights, std::string_view head);
/// Returns the weights with their always-active tokens, or without.
HeadWeights with_ends(HeadWeights weights, bool keep);
/// Returns vocab / parts, rounded up to 64 rows, at most vocab.
int vocab_fraction(int vocab, int parts);

}  // namespace draftscope
