#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "capture/record.h"
#include "engine/decode/draft_vocab.h"
#include "engine/shadow/verified_logits.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// Trees that other heads drafted in rounds of the driving head (docs/decisions/0002). They wait until the
/// committed tokens decide them and are then evaluated by exact match.
class PendingShadowTrees {
  public:
    struct PendingTree {
        DraftTree tree;
        HeadEvalRow row;        ///< complete except for accepted, committed and coverage
        std::size_t first = 0;  ///< index, in the sequence's tokens, of the token after the tree's root
        /// Active sets of the head at the time of the draft; null = the whole vocabulary.
        std::shared_ptr<DraftVocab> active;
    };
    void add(PendingTree pending) { trees_.push_back(std::move(pending)); }
    bool empty() const { return trees_.empty(); }
    /// Index of the oldest token whose verified logits a pending tree may still need.
    std::optional<std::size_t> oldest_row() const;
    /// Removes the trees that `tokens` decides and returns their rows. At the end of the prompt all trees are
    /// decided, clipped like the last round. `verified` has the target's logits after each committed token;
    /// null = no covered_mass.
    std::vector<HeadEvalRow> evaluate(const kernels::Backend& backend, std::span<const TokenId> tokens,
                                      bool at_end, const VerifiedLogits* verified, const Sampling& sampling);

  private:
    std::vector<PendingTree> trees_;
};

}  // namespace draftscope
