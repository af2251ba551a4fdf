#pragma once

#include <cstddef>

#include "kernels/cuda/simt.h"
#include "kernels/device_ops.h"

/// One function per op of Device: launches its kernels on `stream` and returns; errors show up there.
namespace draftscope::kernels::cuda {

void launch_matmul(const MatmulOp& op, cudaStream_t stream);
void launch_rms_norm(const RmsNormOp& op, cudaStream_t stream);
void launch_round(const RoundOp& op, cudaStream_t stream);
void launch_silu_mul(const SiluMulOp& op, cudaStream_t stream);
void launch_rope_store(const RopeStoreOp& op, cudaStream_t stream);
void launch_attention(const AttentionOp& op, cudaStream_t stream);
void launch_select(const SelectOp& op, cudaStream_t stream);
void launch_draw(const DrawOp& op, cudaStream_t stream);
void launch_rank(const RankOp& op, cudaStream_t stream);
void launch_mass(const MassOp& op, cudaStream_t stream);
void launch_head(const HeadOp& op, cudaStream_t stream);
void launch_beam(const BeamOp& op, cudaStream_t stream);
void launch_rerank(const RerankOp& op, cudaStream_t stream);
void launch_accept(const AcceptOp& op, cudaStream_t stream);
void launch_top_set(const TopSetOp& op, cudaStream_t stream);
void launch_router(const RouterOp& op, cudaStream_t stream);
void launch_striped(const StripedOp& op, cudaStream_t stream);
void launch_unite(const UnionOp& op, cudaStream_t stream);
void launch_gather(const GatherOp& op, cudaStream_t stream);
void launch_copy_rows(const CopyRowsOp& op, cudaStream_t stream);
/// Rows `path` of each plane go through `scratch` [planes, count, width], as sources may be destinations too.
void launch_compact(const CompactOp& op, const std::int32_t* path, Bf16* scratch, cudaStream_t stream);

/// Reads `bytes` (a multiple of 16) and keeps nothing of them: what streaming weights costs. `sink` is one
/// float that is never written.
void launch_read(const void* data, std::size_t bytes, float* sink, cudaStream_t stream);
/// A kernel that does nothing.
void launch_empty(cudaStream_t stream);
/// Normal random values, rounded.
void launch_fill_normal(Bf16* data, std::size_t count, float scale, std::uint64_t seed, cudaStream_t stream);

}  // namespace draftscope::kernels::cuda
