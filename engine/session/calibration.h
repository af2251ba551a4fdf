#pragma once

#include <span>
#include <vector>

#include "capture/record.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// Trees that the full head drafted beside the driving head, waiting for the target's own text to judge them
/// (docs/decisions/0002). Judged by exact match against the committed tokens, as the round itself would have
/// been.
class CalibrationTrees {
  public:
    /// `row` has everything but accepted, committed and covered. `first` = index in the sequence's tokens of
    /// the token after the tree's root.
    void add(DraftTree tree, HeadEvalRow row, std::size_t first) {
        waiting_.push_back({std::move(tree), std::move(row), first});
    }
    bool empty() const { return waiting_.empty(); }
    /// Rows of the trees that `tokens` decides. At the prompt's end every tree is decided, clipped like the
    /// last round.
    std::vector<HeadEvalRow> judge(std::span<const TokenId> tokens, bool at_end);

  private:
    struct Waiting {
        DraftTree tree;
        HeadEvalRow row;
        std::size_t first;
    };
    std::vector<Waiting> waiting_;
};

}  // namespace draftscope
