#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/simt.h"
#include "kernels/device_ops.h"

/// One function per op of Device: launches its kernels on `stream` and returns. Errors surface on the stream.
namespace draftscope::kernels::cuda {

void launch_matmul(const MatmulOp& op, Halves halves, cudaStream_t stream);
/// The same values for many rows and all outputs.
void launch_wide_matmul(const MatmulOp& op, Halves halves, cudaStream_t stream);
void launch_rms_norm(const RmsNormOp& op, Halves halves, cudaStream_t stream);
void launch_round(const RoundOp& op, Halves halves, cudaStream_t stream);
void launch_add(const AddOp& op, Halves halves, cudaStream_t stream);
void launch_silu_mul(const SiluMulOp& op, Halves halves, cudaStream_t stream);
void launch_rope_store(const RopeStoreOp& op, Halves halves, cudaStream_t stream);
void launch_attention(const AttentionOp& op, Halves halves, cudaStream_t stream);
void launch_select(const SelectOp& op, cudaStream_t stream);
void launch_cut(const CutOp& op, cudaStream_t stream);
void launch_draw(const DrawOp& op, cudaStream_t stream);
void launch_rank(const RankOp& op, cudaStream_t stream);
void launch_mass(const MassOp& op, cudaStream_t stream);
void launch_entropy(const EntropyOp& op, cudaStream_t stream);
void launch_residual(const ResidualOp& op, cudaStream_t stream);
void launch_head(const HeadOp& op, Halves halves, cudaStream_t stream);
void launch_draft(const DraftOp& op, cudaStream_t stream);
void launch_spread(const SpreadOp& op, cudaStream_t stream);
void launch_reach(const ReachOp& op, cudaStream_t stream);
void launch_own_columns(const OwnColumnsOp& op, cudaStream_t stream);
void launch_beam(std::span<const BeamOp> ops, cudaStream_t stream);
void launch_rerank(std::span<const RerankOp> ops, cudaStream_t stream);
void launch_accept(std::span<const AcceptOp> ops, cudaStream_t stream);
void launch_accept_typical(std::span<const AcceptTypicalOp> ops, cudaStream_t stream);
void launch_list_drafts(std::span<const DraftListOp> ops, cudaStream_t stream);
void launch_accept_drafts(std::span<const AcceptDraftsOp> ops, cudaStream_t stream);
void launch_top_set(const TopSetOp& op, cudaStream_t stream);
void launch_router(const RouterOp& op, Halves halves, cudaStream_t stream);
void launch_striped(const StripedOp& op, cudaStream_t stream);
void launch_unite(const UnionOp& op, cudaStream_t stream);
void launch_list_set(const RowSetOp& op, cudaStream_t stream);
void launch_clusters(const ClustersOp& op, cudaStream_t stream);
void launch_cluster_tokens(const ClusterTokensOp& op, cudaStream_t stream);
void launch_translate(const TranslateOp& op, cudaStream_t stream);
void launch_gather(const GatherOp& op, cudaStream_t stream);
void launch_copy_rows(std::span<const CopyRowsOp> ops, cudaStream_t stream);
/// For ops with paths in device memory. Rows are copied through `scratch`, compact_scratch() values, because
/// sources may also be destinations.
void launch_compact(std::span<const CompactOp> ops, Bf16* scratch, cudaStream_t stream);
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
    static constexpr int most = static_cast<int>(4000 / sizeof(Op));
    Op ops[most];
};
/// Calls `run` with the ops of each launch, and their number.
template <typename Op, typename Run>
void in_batches(std::span<const Op> ops, Run run) {
    Many<Op> many{};
    for (std::size_t first = 0; first < ops.size(); first += Many<Op>::most) {
        const std::span<const Op> part = ops.subspan(first);
        int count = 0;
        for (; count < Many<Op>::most && count < static_cast<int>(part.size()); ++count)
            many.ops[count] = part[static_cast<std::size_t>(count)];
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
void launch_fill_normal(Bf16* data, std::size_t count, float scale, std::uint64_t seed, cudaStream_t stream);

}  // namespace draftscope::kernels::cuda
