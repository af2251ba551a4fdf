#pragma once

#include <span>
#include <vector>

#include "engine/session/round.h"
#include "engine/session/round_rows.h"
#include "engine/session/session_core.h"

namespace draftscope {

/// What a step wants to know of the target's rows, said before the forward, so that the logits may stay on
/// the device that makes them: who emits what, and what recorder and heads will ask for.
class JudgedRows {
  public:
    explicit JudgedRows(SessionCore& core);

    /// The question about the rows of a step, in the order of `rounds`; valid until the next call. Null where
    /// whole rows are needed: for rules that look at distributions (pq, typical); for top-k and
    /// top-p, which cut a row before it is drawn from; on the CPU for whatever is not greedy, or recorded of
    /// drafts.
    const RowQuestion* ask(std::span<const Round> rounds, std::span<const TokenPlace> places);
    /// Of trees that are grown there: completes `plans`, one per round; only where answers_suffice().
    const RowQuestion* ask_trees(std::span<const Round> rounds, std::span<TreePlan> plans);
    /// Can a step do without whole rows, on the device that makes them?
    bool answers_suffice() const;
    /// The target's choices, from the answers of the latest forward.
    void choose(std::vector<TargetChoice>& out) const;

  private:
    bool needs_whole_rows() const;
    bool choices_suffice(std::span<const Round> rounds) const;
    RowQuestion choices_asked() const;
    void list_drafts(std::span<const Round> rounds);
    void list_sets(std::span<const Round> rounds);

    SessionCore& core_;
    int best_ = 1;
    RowQuestion question_;
    std::vector<double> uniforms_;
    std::vector<std::int32_t> rows_, tokens_;
    std::vector<const std::vector<TokenId>*> sets_;
};

/// What is known of a round after its acceptance. Asks for the logits of its rows where they did not stay on
/// a device.
RoundFacts facts_of(SessionCore& core, const Round& round);

}  // namespace draftscope
