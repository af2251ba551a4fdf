#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/sampling.h"
#include "kernels/ops/tree.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Verifies draft trees on the CPU. The fused forms compute only what the accepted path needs. Buffers are
/// kept between calls.
class AcceptOps {
  public:
    static void follow_argmax(const FollowArgmaxOp& op);
    static void list_children(const ListChildrenOp& op);
    static void follow_accepted(const FollowAcceptedOp& op);
    void rejection_sample(ThreadPool& pool, const RejectionSampleOp& op);
    /// See Backend::sample_and_follow().
    void sample_and_follow(ThreadPool& pool, const RejectionSampleOp& op,
                           std::span<const ListChildrenOp> lists, std::span<const FollowAcceptedOp> paths);
    /// Without `entropy`, the op has the entropies. See Backend::accept_typical_trees().
    void accept_typical(ThreadPool& pool, const AcceptTypicalOp& op, const EntropyOp* entropy);

  private:
    /// Buffers for the residual of one node.
    struct Residual {
        std::vector<float> weights, rest;
        std::vector<double> sums, rest_sums;  ///< block sums of both
        void reserve(std::size_t vocab);
    };
    static void try_drafts(const ThreadPool& pool, const RejectionSampleOp& op, int index, Residual& scratch);

    std::vector<Residual> residuals_;  ///< by thread or tree
    std::vector<double> thresholds_, likelihoods_;
    std::vector<char> inner_, accepted_;
    std::vector<std::int32_t> frontier_;  ///< inner nodes whose children are tried next
};

}  // namespace draftscope::kernels
