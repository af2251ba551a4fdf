#pragma once

#include <span>
#include <vector>

#include "engine/decode/decode_context.h"
#include "engine/decode/round.h"
#include "engine/record/round_rows.h"

namespace draftscope {

/// Builds the queries about a step's rows of logits that accompany the target's forward pass. Their results
/// are what acceptance, recorder and heads read, so the logits stay on the device.
class LogitsQueries {
  public:
    explicit LogitsQueries(DecodeContext& core);

    /// Returns the query for the rows of a step on the CPU; valid until the next call. Null if complete rows
    /// are needed: for sampling, simulated acceptance, shadow heads, and recorded drafts or coverage.
    const LogitsQuery* query(std::span<const Round> rounds);
    /// Returns the query for trees in device memory; valid until the next call. Adds random numbers and token
    /// sets to `plans`, one per round. `grown`: the trees grow on the device, which may compute the sets.
    const LogitsQuery* tree_query(std::span<const Round> rounds, std::span<TreePlan> plans, bool grown);
    /// Returns the logits of the latest forward pass after the nodes of a round's tree. `position` is that of
    /// the token after the root.
    TreeLogits tree_logits(const Round& round, const TokenPosition& position) const;
    /// Returns whether the device accepts the paths. If not, the host accepts them from the results.
    bool accepts_on_device() const;
    /// Writes the target's choices [rows], from the results of the latest forward pass.
    void choose(std::vector<TargetSample>& out) const;

  private:
    bool choices_suffice(std::span<const Round> rounds) const;
    LogitsQuery base_query() const;

    DecodeContext& core_;
    int best_ = 1;
    LogitsQuery query_;
    std::vector<int> rejection_nodes_;  ///< [rows] node of each row in the rejection sampling
};

/// Returns the outcome of a round after its acceptance. Includes the logits of its rows unless a query was
/// answered.
RoundOutcome make_round_outcome(DecodeContext& core, const Round& round);

}  // namespace draftscope
