#include <cmath>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

/// What a verifier wants of the target's logits, so that they need not leave the device.
namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / warp_size;
static_assert(draw_tile == warp_size);
constexpr int most_tiles = most_draw_columns / draw_tile;

/// One block per row: the sums of its tiles stay in shared memory, a scan of them finds the tile that the
/// draw falls into, and one thread the column.
__global__ void __launch_bounds__(threads) draw_kernel(const DrawOp op) {
    __shared__ float tiles[most_tiles];
    __shared__ float maxima[warps];
    __shared__ double totals[warps];
    __shared__ int chosen;
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const float* logits = op.logits + row * op.stride;
    float most = -INFINITY;
    for (int i = static_cast<int>(threadIdx.x); i < op.vocab; i += threads) {
        const float value = logits[i];
        most = fmaxf(most, value == value ? value : -INFINITY);
    }
    most = warp_max(most);
    if (lane == 0) maxima[warp] = most;
    if (threadIdx.x == 0) chosen = -1;
    __syncthreads();
    for (int w = 0; w < warps; ++w) most = fmaxf(most, maxima[w]);
    const bool any = most != -INFINITY;
    const auto weight = [&](int i) {
        const float value = i < op.vocab ? logits[i] : -INFINITY;
        return any && value == value ? expf((value - most) * op.scale) : 0.0f;
    };
    const int count = (op.vocab + draw_tile - 1) / draw_tile;
    for (int t = warp; t < count; t += warps) {
        const float sum = warp_sum(weight(t * draw_tile + lane));
        if (lane == 0) tiles[t] = sum;
    }
    __syncthreads();
    // A thread answers for neighbouring tiles.
    const int each = (count + threads - 1) / threads;
    const int first = min(static_cast<int>(threadIdx.x) * each, count);
    const int end = min(first + each, count);
    double mine = 0;
    for (int t = first; t < end; ++t) mine += static_cast<double>(tiles[t]);
    double all = 0;
    double before = block_before<warps>(mine, totals, all);
    const double target = op.uniforms[row] * all;
    // The last thread with any weight whose part begins at or below the target.
    if (mine > 0 && before <= target) atomicMax(&chosen, static_cast<int>(threadIdx.x));
    __syncthreads();
    if (chosen < 0 ? threadIdx.x != 0 : static_cast<int>(threadIdx.x) != chosen) return;
    int token = 0;
    if (chosen >= 0) {
        int tile = first;
        double start = before;
        for (int t = first; t < end; ++t) {
            if (tiles[t] > 0 && before <= target) {
                tile = t;
                start = before;
            }
            before += static_cast<double>(tiles[t]);
        }
        before = start;
        token = tile * draw_tile;
        for (int i = tile * draw_tile; i < min((tile + 1) * draw_tile, op.vocab); ++i) {
            const float w = weight(i);
            if (!(w > 0)) continue;
            if (before <= target) token = i;
            before += static_cast<double>(w);
        }
    }
    op.tokens[row] = token;
    op.values[row] = logits[token];
    op.log_norm[row] = all > 0 ? logf(static_cast<float>(all)) + most * op.scale : 0.0f;
}

/// One block per token.
__global__ void __launch_bounds__(threads) rank_kernel(const RankOp op) {
    __shared__ int counts[warps];
    const int i = static_cast<int>(blockIdx.x);
    const int token = op.tokens[i];
    const float* logits = op.logits + static_cast<std::int64_t>(op.rows[i]) * op.stride;
    const float value = logits[token];
    int before = 0;
    for (int t = static_cast<int>(threadIdx.x); t < op.vocab; t += threads) {
        const float other = logits[t];
        before += other > value || (t < token && other == value) ? 1 : 0;
    }
    before = warp_sum(before);
    if (threadIdx.x % warp_size == 0) counts[threadIdx.x / warp_size] = before;
    __syncthreads();
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int w = 0; w < warps; ++w) sum += counts[w];
    op.values[i] = value;
    op.ranks[i] = sum;
}

/// One block per sum.
__global__ void __launch_bounds__(threads) mass_kernel(const MassOp op) {
    __shared__ float sums[warps];
    const int i = static_cast<int>(blockIdx.x);
    const std::int64_t row = op.rows == nullptr ? i : op.rows[i];
    const float* logits = op.logits + row * op.stride;
    const float norm = op.log_norm[row];
    const std::int32_t* ids = op.ids + op.first[i];
    float sum = 0;
    for (int j = static_cast<int>(threadIdx.x); j < op.size[i]; j += threads) {
        const float logit = logits[ids[j]];
        if (logit == logit) sum += expf(logit * op.scale - norm);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) sums[threadIdx.x / warp_size] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float all = 0;
    for (int w = 0; w < warps; ++w) all += sums[w];
    op.out[i] = all;
}

}  // namespace

void launch_draw(const DrawOp& op, cudaStream_t stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(draw_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op);
}

void launch_rank(const RankOp& op, cudaStream_t stream) {
    if (op.count == 0) return;
    DS_LAUNCH(rank_kernel, static_cast<unsigned>(op.count), threads, 0, stream, op);
}

void launch_mass(const MassOp& op, cudaStream_t stream) {
    if (op.count == 0) return;
    DS_LAUNCH(mass_kernel, static_cast<unsigned>(op.count), threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
