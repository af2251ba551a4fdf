#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "capture/record.h"
#include "engine/sequence/sequence.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

/// One sequence's round, passed from phase to phase of a step.
struct Round {
    /// Prepares the object for another round in the same memory. `longest_path` bounds the accepted nodes.
    void reset(Sequence& of, int index, int longest_path) {
        sequence = &of;
        tree_index = index;
        job = -1;
        candidates = nullptr;
        acceptance.path.reserve(longest_path);
        emitted.clear();
        emitted.reserve(longest_path);
        best.clear();
        best_k = 0;
        finish = Finish::none;
        new_text = 0;
        uncovered = 0;
        record = {};
    }

    Sequence* sequence = nullptr;
    int tree_index = 0;                           ///< of its tree in the RoundStep
    int job = -1;                                 ///< index of the draft job; -1 = no room to draft
    const DraftCandidates* candidates = nullptr;  ///< of the draft job; null without one
    DraftTree tree;
    int first_row = 0;                ///< of the root in the step's target forward pass
    std::span<TargetSample> choices;  ///< the target's choices for this tree's rows
    Acceptance acceptance;            ///< before the text was cut
    std::vector<TokenId> emitted;     ///< committed tokens, after clipping
    std::vector<TokenId> best;        ///< [nodes, best_k] as the head takes them, see TargetTokens::nodes
    int best_k = 0;
    Finish finish = Finish::none;
    std::size_t new_text = 0;  ///< bytes by which the sequence's text grew
    int uncovered = 0;         ///< tokens of `emitted` outside the active set
    RoundRecord record;

    /// Position of the root, before the round is committed.
    int root() const { return static_cast<int>(sequence->tokens.size()) - 1; }
    std::string_view piece() const {
        const std::string_view text = sequence->outcome.text;
        return text.substr(text.size() - new_text);
    }
    int accepted() const { return static_cast<int>(std::min(acceptance.path.size() - 1, emitted.size())); }
    /// Number of nodes of the path, root first, that a committed token follows.
    std::size_t nodes_with_token() const { return std::min(acceptance.path.size(), emitted.size()); }
};

}  // namespace draftscope
