#pragma once

#include <span>
#include <vector>

#include "engine/decode/decode_context.h"
#include "engine/decode/judged_rows.h"
#include "engine/decode/round.h"

namespace draftscope {

/// Steps that a device runs from the drafter's catch-up to the acceptance: the host asks for all of it, waits
/// once and reads a few kilobytes. The rounds are those that the host would have made, node by node.
class RoundsThere {
  public:
    RoundsThere(DecodeContext& core, JudgedRows& judged) : core_(core), judged_(judged) {}

    /// For drafters that say so (Drafter::fits_there), every rule, steps in which nobody watches and
    /// nothing drafts or is judged beside.
    bool fits(const DraftContext& context, std::span<const DraftJob> jobs,
              std::span<const Round> rounds) const;
    /// Where a step does not fit, the host needs the features that stayed there; jobs[j] is of rounds[of[j]].
    Status bring_features(std::span<DraftJob> jobs, std::span<const Round> rounds,
                          std::span<const std::size_t> of);
    /// Trees, and the target's answers about them in core.forward; job j is round j's.
    Status run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds);
    /// Of round `index` of the latest run() in the target's pass: its tree's, and some behind them that count
    /// for nothing.
    int rows(std::size_t index) const { return step_.trees()[index].nodes; }
    /// Was the path of the latest run() accepted there too, its keys and values moved together?
    bool accepted_there() const { return accepted_there_; }
    /// Returns the path that the device accepted in round `index`.
    std::vector<int> path(std::size_t index) const { return step_.path(static_cast<int>(index)); }
    /// Commits round `index` of the latest run(); its features stay there once all commits have ended.
    Status commit(Round& round, std::size_t index);
    void end_commits();

  private:
    Status ask(DraftContext& context, std::span<DraftJob> jobs, const TreesRequest& request);

    DecodeContext& core_;
    JudgedRows& judged_;
    TreeStep step_;
    DeviceSpans spans_;
    std::vector<kernels::CopyRowsOp> moves_;  ///< of features, of the step's rounds
    bool accepted_there_ = false;
};

}  // namespace draftscope
