#pragma once

#include <vector>

#include "engine/heads/head.h"

namespace draftscope {

/// Fills `out` from dense draft logits [rows, columns >= support]: logsumexp and top-k over the first
/// `support` columns. Ids are column numbers. Records phase topk with its child softmax.
void select_candidates(ProposeContext& context, Rows<const float> logits, int support, int k, Proposal& out);

}  // namespace draftscope
