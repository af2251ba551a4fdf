#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "capture/record.h"
#include "engine/session/active_sets.h"
#include "engine/session/verified_rows.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// Trees that other heads drafted in the rounds of the driving one, waiting for the target's own text to
/// judge them (docs/decisions/0002). Judged by exact match against the committed tokens, as the round itself
/// would have been.
class AlignedTrees {
  public:
    struct Waiting {
        DraftTree tree;
        HeadEvalRow row;        ///< everything but accepted, committed and what was covered
        std::size_t first = 0;  ///< index in the sequence's tokens of the token after the tree's root
        /// Of the head as it drafted; null = it leaves nothing out.
        std::shared_ptr<ActiveSets> active;
    };
    void add(Waiting waiting) { waiting_.push_back(std::move(waiting)); }
    bool empty() const { return waiting_.empty(); }
    /// Oldest token whose row a judgement may still ask for.
    std::optional<std::size_t> oldest_row() const;
    /// Rows of the trees that `tokens` decides. At the prompt's end every tree is decided, clipped like the
    /// last round. `verified` has the target's rows after each committed token; null = covered_mass is not
    /// wanted.
    std::vector<HeadEvalRow> judge(const kernels::Exec& exec, std::span<const TokenId> tokens, bool at_end,
                                   const VerifiedRows* verified, const Sampling& sampling);

  private:
    std::vector<Waiting> waiting_;
};

}  // namespace draftscope
