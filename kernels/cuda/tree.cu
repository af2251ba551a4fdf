#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/top.cuh"

namespace draftscope::kernels::cuda {
namespace {

constexpr int beam_warps = 8;
constexpr int beam_threads = beam_warps * warp_size;
static_assert(beam_threads * held == most_beam);

/// One block: what BeamExpansion does with a level, in the same arithmetic.
__global__ void __launch_bounds__(beam_threads) beam_kernel(const BeamOp op) {
    __shared__ std::uint64_t shared[beam_warps * most_selected];
    __shared__ std::uint64_t best[most_selected];
    __shared__ float above[most_selected];
    const int count = op.rows * op.k;
    for (int r = static_cast<int>(threadIdx.x); r < op.rows; r += beam_threads)
        above[r] = op.level == 0 ? 0.0f : op.scores[r];
    __syncthreads();
    std::uint64_t keys[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * beam_threads + static_cast<int>(threadIdx.x);
        keys[i] = no_key;
        if (at >= count) continue;
        const int row = at / op.k;
        float logprob = op.logits[at] - op.logsumexp[row];
        logprob = logprob == logprob ? fminf(logprob, 0.0f) : -INFINITY;
        const int id = op.ids[at];
        op.pool_tokens[at] = op.tokens == nullptr ? id : op.tokens[id];
        op.pool_logprobs[at] = logprob;
        // At the first level candidates stay in their order, whatever their values are.
        const float score = op.level == 0 ? -static_cast<float>(at) : above[row] + logprob;
        keys[i] = rank_key(score, static_cast<std::uint32_t>(at));
    }
    if (op.keep == 0) return;  // all threads alike
    block_top<beam_warps>(keys, op.keep, shared, best);
    __syncthreads();  // and the pool is written
    for (int b = static_cast<int>(threadIdx.x); b < op.keep; b += beam_threads) {
        const auto at = static_cast<int>(place_of(best[b]));
        const int row = at / op.k;
        op.scores[b] = above[row] + op.pool_logprobs[at];
        op.next_tokens[b] = op.pool_tokens[at];
        op.next_rows[b] = op.first_row + row;
        std::int32_t* tail = op.next_tails + static_cast<std::int64_t>(b) * (op.level + 1);
        for (int l = 0; l < op.level; ++l) tail[l] = op.tails[static_cast<std::int64_t>(row) * op.level + l];
        tail[op.level] = op.first_slot + b;
    }
}

}  // namespace

void launch_beam(const BeamOp& op, cudaStream_t stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(beam_kernel, 1, beam_threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
