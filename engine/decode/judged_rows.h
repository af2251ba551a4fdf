#pragma once

#include <span>
#include <vector>

#include "engine/decode/decode_context.h"
#include "engine/decode/round.h"
#include "engine/record/round_rows.h"

namespace draftscope {

/// What a step wants to know of the target's rows, said before the forward, so that the logits may stay on
/// the device that makes them: who emits what, and what recorder and heads will ask for.
class JudgedRows {
  public:
    explicit JudgedRows(DecodeContext& core);

    /// The question about the rows of a step, in the order of `rounds`; valid until the next call. Null where
    /// whole rows are needed: on the CPU for whatever is not greedy, or recorded of drafts.
    const RowQuestion* ask(std::span<const Round> rounds, std::span<const TokenPosition> places);
    /// Of trees that are grown there: completes `plans`, one per round; only where answers_suffice().
    const RowQuestion* ask_trees(std::span<const Round> rounds, std::span<TreePlan> plans);
    /// Returns the logits of the latest forward pass after the nodes of a round's tree. `position` is that of
    /// the token after the root.
    TreeLogits tree_logits(const Round& round, const TokenPosition& position) const;
    /// Can a step with trees that are grown there do without whole rows, on the device that makes them?
    bool answers_suffice() const;
    /// Is a path that such trees' choices accept the one that counts? Else the host walks, with the answers.
    bool accepts_there() const;
    /// The target's choices, from the answers of the latest forward.
    void choose(std::vector<TargetSample>& out) const;

  private:
    void list_residuals(std::span<const Round> rounds, std::span<const TokenPosition> places);
    bool choices_suffice(std::span<const Round> rounds) const;
    RowQuestion choices_asked() const;
    void list_drafts(std::span<const Round> rounds);
    void list_sets(std::span<const Round> rounds);

    DecodeContext& core_;
    int best_ = 1;
    RowQuestion question_;
    ResidualQuestion residual_;
    std::vector<int> residual_of_;  ///< of each row, as add_residuals() says
    std::vector<double> uniforms_;
    std::vector<std::int32_t> rows_, tokens_;
    std::vector<const std::vector<TokenId>*> sets_;
};

/// What is known of a round after its acceptance. Asks for the logits of its rows where they did not stay on
/// a device.
RoundOutcome make_round_outcome(DecodeContext& core, const Round& round);

}  // namespace draftscope
