#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/sampling.h"
#include "kernels/ops/sets.h"
#include "kernels/ops/topk.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Ops over sets of tokens and of clusters on the CPU. Keeps its buffers between calls.
class SetOps {
  public:
    void list_unique_tokens(const ThreadPool& pool, const UniqueTokensOp& op);
    void clusters(const ThreadPool& pool, const ClustersOp& op);
    void cluster_tokens(const ClusterTokensOp& op);
    static void remap_ids(const RemapIdsOp& op);
    static void gather_columns(const ThreadPool& pool, const GatherColumnsOp& op);
    void list_reachable_tokens(const ReachableTokensOp& op);

  private:
    std::vector<std::uint8_t> marks_;  ///< one per token or cluster, 0 between calls
    std::vector<std::int32_t> first_columns_;
};

void redistribute(ThreadPool& pool, const RedistributeOp& op);
/// TopKOp for rows with candidates of their own, given as tokens or as runs of columns.
void topk_of_candidates(ThreadPool& pool, const TopKOp& op);

}  // namespace draftscope::kernels
