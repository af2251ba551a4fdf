#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/session/sequence.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// One sequence's round on its way through the phases of a step.
struct Round {
    explicit Round(Sequence& of) : sequence(&of) {}

    Sequence* sequence;
    int job = -1;  ///< among the step's draft jobs; -1 = there was no room to draft
    DraftTree tree;
    int first_row = 0;                ///< of the tree in the step's target forward
    std::span<TargetChoice> choices;  ///< of the step's rows
    Acceptance acceptance;
    std::vector<TokenId> emitted;    ///< after clipping
    std::vector<TokenId> best;       ///< [path, best_k] top tokens of the path, when something wants them
    std::vector<TokenId> tree_best;  ///< [nodes, best_k], for heads that see the whole tree
    int best_k = 0;
    Finish finish = Finish::none;
    std::string piece;
    int uncovered = 0;  ///< of `emitted`, tokens outside the head's active set
    RoundRecord record;

    int accepted() const { return static_cast<int>(std::min(acceptance.path.size() - 1, emitted.size())); }
};

}  // namespace draftscope
