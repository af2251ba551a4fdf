#pragma once

#include <span>
#include <vector>

#include "engine/sequence/decode_context.h"
#include "engine/sequence/round.h"

namespace draftscope {

/// The part of a step that runs on the backend: catch-up, trees, the target's pass and acceptance. The host
/// enqueues it, waits once and downloads a few kilobytes. With an active observer, each phase is
/// synchronized.
class BackendStep {
  public:
    explicit BackendStep(DecodeContext& core);

    /// Enqueues the drafts of the rounds' trees, their verification and acceptance. Round::job is the index
    /// of a round's job. Running out of memory and too large a vocabulary are errors; call finish() also
    /// then. Trees that are known before they are verified are in their rounds afterwards.
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds);
    /// Waits for the step and reads its trees. The results about the target's logits are then in
    /// core.answers.
    Status finish(std::span<DraftJob> jobs, std::span<Round> rounds);
    /// Returns the first row of a tree in the target's pass.
    int first_row(int tree_index) const { return step_.layout.trees()[tree_index].first_row; }
    /// Returns the path that was accepted in a tree. Its keys and values are compacted.
    std::span<const int> path(int tree_index) const { return step_.results.path(tree_index); }
    /// Commits a round of the latest step. Then end_commits() copies the rounds' features, which stay in the
    /// backend's memory.
    Status commit(Round& round);
    void end_commits();

  private:
    void plan(const DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds);
    LogitsQuery logits_query(std::span<const Round> rounds, bool grown);
    Status prepare(const LogitsQuery& query, std::span<const Round> rounds);
    Status draft(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds);
    Status verify(std::span<const Round> rounds);
    Status accept(std::span<const Round> rounds);
    TreePass target_pass(std::span<const Round> rounds);

    DecodeContext& core_;
    int best_ = 0;  ///< best tokens of each row of logits that recorder and heads read
    RoundStep step_;
    PassOutputs outputs_;                          ///< of the target's pass
    std::size_t rule_index_ = 0, rule_count_ = 0;  ///< of LogitsResult::by_rule in the results
    bool enqueued_ = false;                        ///< the latest step was enqueued completely
    // Reused by every step:
    std::vector<TokenPosition> positions_;
    std::vector<TreePass::Tree> trees_;
    std::vector<kernels::CopyRowsOp> feature_ops_;  ///< copies of the features of the step's rounds
};

}  // namespace draftscope
