#pragma once

#include "engine/heads/head.h"

namespace draftscope {

/// What a recorded trace knows of the text to come: best.row(l) holds the target's own best tokens, best
/// first, for the position that a draft at level l predicts in the recorded text. Given before each round;
/// rows past the end of the text are left out. `state` is head oracle's.
void foresee(HeadState& state, Rows<const TokenId> best);

}  // namespace draftscope
