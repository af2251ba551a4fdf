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

    /// Returns the query for the trees of a step. Adds random numbers, limits of paths and token sets to
    /// `plan`, which lists the rounds' trees. `grown`: the trees grow on the backend, where the head may make
    /// their token sets.
    LogitsQuery query(std::span<const Round> rounds, RoundPlan& plan, bool grown);
    /// Returns the results about a round's tree.
    TreeLogits tree_logits(const Round& round) const;

  private:
    void list_sets(std::span<const Round> rounds, RoundPlan& plan) const;
    bool records_nodes() const { return core_.records.on() && core_.options.record_nodes; }

    DecodeContext& core_;
    int best_ = 0;  ///< best tokens of each row that recorder and heads read
    std::vector<TokenPosition> positions_;
};

/// Returns the outcome of a round after its acceptance.
RoundOutcome make_round_outcome(DecodeContext& core, const Round& round);

}  // namespace draftscope
