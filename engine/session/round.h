#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "capture/record.h"
#include "engine/session/sequence.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// One sequence's round on its way through the phases of a step.
struct Round {
    /// Another round, in the memory of the one before; `longest_path`: nodes of any that may be accepted.
    void reset(Sequence& of, int longest_path) {
        sequence = &of;
        job = -1;
        // What the last tree's drafts were drawn from goes back to who draws.
        tree.drawn_from.clear();
        acceptance.path.reserve(static_cast<std::size_t>(longest_path));
        emitted.clear();
        emitted.reserve(static_cast<std::size_t>(longest_path));
        best.clear();
        tree_best.clear();
        best_k = 0;
        finish = Finish::none;
        new_text = 0;
        uncovered = 0;
        record = {};
    }

    Sequence* sequence = nullptr;
    int job = -1;  ///< among the step's draft jobs; -1 = there was no room to draft
    DraftTree tree;
    int first_row = 0;                ///< of the tree in the step's target forward
    std::span<TargetChoice> choices;  ///< of the step's rows
    Acceptance acceptance;
    AcceptScratch scratch;           ///< of judging it
    std::vector<TokenId> emitted;    ///< after clipping
    std::vector<TokenId> best;       ///< [path, best_k] top tokens of the path, when something wants them
    std::vector<TokenId> tree_best;  ///< [nodes, best_k], for heads that see the whole tree
    int best_k = 0;
    Finish finish = Finish::none;
    std::size_t new_text = 0;  ///< bytes that the sequence's text grew by
    int uncovered = 0;         ///< of `emitted`, tokens outside the head's active set
    RoundRecord record;

    std::string_view piece() const {
        const std::string_view text = sequence->outcome.text;
        return text.substr(text.size() - new_text);
    }
    int accepted() const { return static_cast<int>(std::min(acceptance.path.size() - 1, emitted.size())); }
};

}  // namespace draftscope
