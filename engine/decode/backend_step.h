#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/reusable_vector.h"
#include "engine/decode/decode_context.h"
#include "engine/decode/logits_queries.h"
#include "engine/decode/round.h"

namespace draftscope {

/// The part of a step that runs on the backend. It has the drafter's catch-up, the trees, the target's pass
/// and the acceptance. The host enqueues it, synchronizes once and downloads a few kilobytes. With an active
/// observer, each phase is synchronized. The CPU's ops run at once, so the host knows the trees before the
/// target's pass, which has a row for each node.
class BackendStep {
  public:
    BackendStep(DecodeContext& core, LogitsQueries& queries) : core_(core), queries_(queries) {}

    /// Enqueues the drafts of the rounds' trees, their verification and acceptance. Round::job is the index
    /// of a round's job. `drafted` is called when the trees are known, here or in finish(). Running out of
    /// memory and too large a vocabulary are errors; call finish() also then.
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                   FunctionRef<void()> drafted);
    /// Waits for the step and reads its trees. The target's results are then in core.forward.
    Status finish(std::span<DraftJob> jobs, std::span<Round> rounds, FunctionRef<void()> drafted);
    /// Returns the first row of round `index` in the target's pass.
    int first_row(std::size_t index) const { return step_.trees()[index].first_row; }
    /// Returns the path that was accepted in round `index`. Its keys and values are compacted.
    std::span<const int> path(std::size_t index) const { return step_.path(static_cast<int>(index)); }
    /// Commits round `index` of the latest step. Then end_commits() copies the rounds' features, which stay
    /// in the backend's memory.
    Status commit(Round& round, std::size_t index);
    void end_commits();

  private:
    Status draft_on_host(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds);
    void plan(const DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds);
    Status place();
    Status place_sets(std::span<const Round> rounds);
    void upload_tree(std::span<const Round> rounds, std::size_t index,
                     std::span<const std::int32_t> sampled_rows);
    void upload_trees(std::span<const Round> rounds);
    Status enqueue_drafts(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds);
    Status enqueue_verify(const TreesRequest& request);
    Status enqueue_step(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                        TreesRequest& request, FunctionRef<void()> drafted);
    Status collect_drafts(std::span<DraftJob> jobs, std::span<Round> rounds);
    Status drop_missing_rows(std::span<const Round> rounds);
    std::span<TreePlan> plans() { return {plans_.data(), plans_.size()}; }
    /// Returns whether a round's tree grows on the backend.
    bool grows(const Round& round) const { return round.job >= 0 && core_.drafter.grows_trees(); }

    DecodeContext& core_;
    LogitsQueries& queries_;
    TreeStep step_;
    DeviceSpans spans_;
    bool enqueued_ = false;  ///< the latest step was enqueued completely
    // Reused by every step:
    std::vector<std::int32_t> sampled_rows_;  ///< of trees that are placed again
    ReusableVector<TreePlan> plans_;
    std::vector<KvCache*> caches_;
    std::vector<kernels::CopyRowsOp> moves_;  ///< copies of the features of the step's rounds
};

}  // namespace draftscope
