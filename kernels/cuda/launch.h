#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/simt.h"
#include "kernels/device_ops.h"

/// One function per op of Device: launches its kernels on `stream` and returns. Errors surface on the stream.
namespace draftscope::kernels::cuda {

void launch_matmul(const MatmulOp& op, Float16Kind dtype, cudaStream_t stream);
/// The same values for many rows and all outputs.
void launch_wide_matmul(const MatmulOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_rms_norm(const RmsNormOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_cast(const CastOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_add(const AddOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_silu_mul(const SiluMulOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_rope_store(const RopeStoreOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_attention(const AttentionOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_topk(const TopKOp& op, cudaStream_t stream);
void launch_mask_top_k_top_p(const TopKTopPMaskOp& op, cudaStream_t stream);
void launch_sample(const SampleOp& op, cudaStream_t stream);
void launch_rank(const RankOp& op, cudaStream_t stream);
void launch_sum_set_probability(const SetProbabilityOp& op, cudaStream_t stream);
void launch_entropy(const EntropyOp& op, cudaStream_t stream);
void launch_rejection_sample(const RejectionSampleOp& op, cudaStream_t stream);
void launch_matmul_topk(const MatmulTopKOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_sample_without_replacement(const SampleWithoutReplacementOp& op, cudaStream_t stream);
void launch_redistribute(const RedistributeOp& op, cudaStream_t stream);
void launch_list_reachable_tokens(const ReachableTokensOp& op, cudaStream_t stream);
void launch_gather_columns(const GatherColumnsOp& op, cudaStream_t stream);
void launch_beam(std::span<const BeamOp> ops, cudaStream_t stream);
void launch_rerank(std::span<const RerankOp> ops, cudaStream_t stream);
void launch_follow_argmax(std::span<const FollowArgmaxOp> ops, cudaStream_t stream);
void launch_accept_typical(std::span<const AcceptTypicalOp> ops, cudaStream_t stream);
void launch_list_children(std::span<const ListChildrenOp> ops, cudaStream_t stream);
void launch_follow_accepted(std::span<const FollowAcceptedOp> ops, cudaStream_t stream);
void launch_topk_set(const TopKSetOp& op, cudaStream_t stream);
void launch_matmul_topk_set(const MatmulTopKSetOp& op, Float16Kind dtype, cudaStream_t stream);
void launch_bucket_top_m(const BucketTopMOp& op, cudaStream_t stream);
void launch_list_unique_tokens(const UniqueTokensOp& op, cudaStream_t stream);
void launch_update_index_set(const UpdateIndexSetOp& op, cudaStream_t stream);
void launch_clusters(const ClustersOp& op, cudaStream_t stream);
void launch_cluster_tokens(const ClusterTokensOp& op, cudaStream_t stream);
void launch_remap_ids(const RemapIdsOp& op, cudaStream_t stream);
void launch_gather(const GatherOp& op, cudaStream_t stream);
void launch_copy_rows(std::span<const CopyRowsOp> ops, cudaStream_t stream);
/// For ops with paths in device memory. Rows are copied through `scratch`, compact_scratch() values, because
/// sources may also be destinations.
void launch_compact(std::span<const CompactOp> ops, half_t* scratch, cudaStream_t stream);
inline std::size_t compact_scratch(std::span<const CompactOp> ops) {
    std::size_t values = 0;
    for (const CompactOp& op : ops)
        values += static_cast<std::size_t>(op.planes) * static_cast<std::size_t>(op.count) *
                  static_cast<std::size_t>(op.width);
    return values;
}

/// Ops that one launch takes by value, within the 4 KB of kernel parameters that every CUDA version supports.
template <typename Op>
struct Many {
    static constexpr int capacity = static_cast<int>(4000 / sizeof(Op));
    Op ops[capacity];
};
/// Calls `run` with the ops of each launch, and their number.
template <typename Op, typename Run>
void in_batches(std::span<const Op> ops, Run run) {
    Many<Op> many{};
    for (std::size_t first = 0; first < ops.size(); first += Many<Op>::capacity) {
        const std::span<const Op> part = ops.subspan(first);
        int count = 0;
        for (; count < Many<Op>::capacity && count < static_cast<int>(part.size()); ++count)
            many.ops[count] = part[count];
        run(many, static_cast<unsigned>(count));
    }
}

enum class Reads { plain, evict_first };
/// Reads `bytes` (a multiple of 16) and discards them, to measure the cost of streaming weights. `sink` is
/// one float that is never written.
void launch_read(const void* data, std::size_t bytes, Reads how, float* sink, cudaStream_t stream);
/// An empty kernel.
void launch_empty(cudaStream_t stream);
/// An empty kernel that may start before the preceding kernel ends (programmatic dependent launch, sm_90 and
/// later).
void launch_early(cudaStream_t stream);
/// The most blocks of 256 threads in a cluster; 0 = the GPU has no clusters.
int largest_cluster();
/// Normally distributed random values, rounded.
void launch_fill_normal(half_t* data, std::size_t count, float scale, std::uint64_t seed,
                        cudaStream_t stream);

}  // namespace draftscope::kernels::cuda
