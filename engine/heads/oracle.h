#pragma once

#include "engine/heads/head.h"

namespace draftscope {

/// Sets the future tokens of a recorded text; called before each round. Row best.row(l) holds the target's
/// best tokens, best first, for the position that a draft at level l predicts. Rows after the end of the text
/// are omitted. `state` is a state of head oracle.
void set_future_tokens(HeadState& state, Rows<const TokenId> best);

}  // namespace draftscope
