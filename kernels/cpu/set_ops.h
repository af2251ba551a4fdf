#pragma once

#include <cstdint>
#include <vector>

#include "kernels/exec.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/sets.h"
#include "kernels/ops/topk.h"

namespace draftscope::kernels {

/// Ops over sets of tokens and of clusters on the CPU. Keeps its buffers between calls.
class SetOps {
  public:
    void list_unique_tokens(const Exec& exec, const UniqueTokensOp& op);
    void clusters(const Exec& exec, const ClustersOp& op);
    void cluster_tokens(const ClusterTokensOp& op);
    static void remap_ids(const RemapIdsOp& op);
    static void gather_columns(const Exec& exec, const GatherColumnsOp& op);
    void list_reachable_tokens(const ReachableTokensOp& op);

  private:
    std::vector<std::uint8_t> marks_;  ///< one per token or cluster, 0 between calls
    std::vector<std::int32_t> first_columns_;
};

void redistribute(Exec& exec, const RedistributeOp& op);
/// TopKOp for rows with candidates of their own, given as tokens or as runs of columns.
void topk_of_candidates(Exec& exec, const TopKOp& op);

}  // namespace draftscope::kernels
