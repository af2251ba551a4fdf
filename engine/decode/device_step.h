#pragma once

#include <span>
#include <vector>

#include "engine/decode/decode_context.h"
#include "engine/decode/logits_queries.h"
#include "engine/decode/round.h"

namespace draftscope {

/// Runs steps on a device, from the drafter's catch-up to the acceptance. The host enqueues a whole step,
/// synchronizes once and downloads a few kilobytes. With an active observer, each phase is synchronized.
class DeviceStep {
  public:
    DeviceStep(DecodeContext& core, LogitsQueries& queries) : core_(core), queries_(queries) {}

    /// Drafts the rounds' trees and verifies them; the target's results are in core.forward. Round::job is
    /// the index of a round's job. Running out of device memory and too large a vocabulary are errors.
    Status run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds);
    /// Returns the number of rows of round `index` in the target's pass: its tree's, then unused ones.
    int rows(std::size_t index) const { return step_.trees()[index].nodes; }
    /// Returns whether the device accepted the paths of the latest run() and compacted their keys and values.
    bool accepted_on_device() const { return accepted_on_device_; }
    /// Returns the path that the device accepted in round `index`.
    std::vector<int> path(std::size_t index) const { return step_.path(static_cast<int>(index)); }
    /// Commits round `index` of the latest run(). end_commits() enqueues the copies of the rounds' features,
    /// which stay in device memory.
    Status commit(Round& round, std::size_t index);
    void end_commits();

  private:
    Status draft_on_host(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds);
    std::vector<TreePlan> plan(const DraftContext& context, std::span<DraftJob> jobs,
                               std::span<const Round> rounds) const;
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds,
                   const TreesRequest& request);
    /// Returns whether a round's tree grows on the device.
    bool grows(const Round& round) const { return round.job >= 0 && core_.drafter.drafts_on_device(); }

    DecodeContext& core_;
    LogitsQueries& queries_;
    TreeStep step_;
    DeviceSpans spans_;
    std::vector<kernels::CopyRowsOp> moves_;  ///< copies of the features of the step's rounds
    bool accepted_on_device_ = false;
};

}  // namespace draftscope
