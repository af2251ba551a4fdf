#include <cmath>

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = sample_threads;
constexpr int warps = sample_warps;

struct Shared {
    SampleShared draw;
    double sums[warps];
    int found;
};

/// The sum of values [count], in a fixed order.
__device__ double block_total(const float* values, int count, Shared& shared) {
    double local_sum = 0;
    for (int j = static_cast<int>(threadIdx.x); j < count; j += threads)
        local_sum += static_cast<double>(values[j]);
    local_sum = warp_sum(local_sum);
    __syncthreads();
    if (threadIdx.x % warp_size == 0) shared.sums[threadIdx.x / warp_size] = local_sum;
    __syncthreads();
    double all = 0;
    for (int w = 0; w < warps; ++w) all += shared.sums[w];
    return all;
}

/// Index of `token` in the node's q; -1 without q.
__device__ int index_in_q(const RejectionSampleOp& op, const RejectionNode& node, int token, Shared& shared) {
    if (node.support == 0) return -1;
    if (node.first_id < 0) return token;
    __syncthreads();
    if (threadIdx.x == 0) shared.found = -1;
    __syncthreads();
    const std::int32_t* ids = op.ids + node.first_id;
    for (int j = static_cast<int>(threadIdx.x); j < node.support; j += threads)
        if (ids[j] == token) shared.found = j;  // each id occurs once
    __syncthreads();
    return shared.found;
}

/// One block per node.
__global__ void __launch_bounds__(threads) rejection_sample_kernel(const RejectionSampleOp op) {
    DS_SHARED(Shared, shared);
    const RejectionNode node = op.nodes[blockIdx.x];
    const float* logits = op.logits + static_cast<std::int64_t>(node.row) * op.stride;
    const float norm = op.log_norm[node.row];
    const float min_logit = op.min_logit == nullptr ? -INFINITY : op.min_logit[node.row];
    float* weights = op.weights + static_cast<std::int64_t>(blockIdx.x) * op.vocab;
    float* q = op.probs + node.first_prob;
    float* saved = op.saved + node.first_prob;
    const auto probability = [&](int token) {
        return token_probability(logits[token], op.inv_temperature, norm, min_logit);
    };
    const ColumnWeights weight{[&](int i) { return i < op.vocab ? weights[i] : 0.0f; },
                               [](int, float value) { return value; }};
    TileRun run;
    double left = 1;  // remaining weight of q
    int accepted = -1;
    for (int d = 0; d < node.drafts; ++d) {
        const int token = op.drafts[node.first_draft + d];
        const int index = index_in_q(op, node, token, shared);
        const double share = index < 0 ? 1.0 : static_cast<double>(q[index]) / left;
        double p = 0;
        if (d == 0)
            p = static_cast<double>(probability(token));
        else if (run.all > 0)
            p = static_cast<double>(weights[token]) / run.all;
        if (op.uniforms[node.first_draft + d] * share < p) {
            accepted = d;
            break;  // uniform across the block
        }
        if (d == 0) {
            for_columns(static_cast<int>(threadIdx.x), threads, op.vocab, probability,
                        [&](int i, float p) { weights[i] = p; });
            run = add_tiles(op.vocab, shared.draw, weight);
        }
        __syncthreads();  // the thread that read the weights is done
        const auto scale = static_cast<float>(run.all / left);
        float weight_before = 0;
        const auto change = [&](bool back) {
            if (node.support == 0) {
                if (threadIdx.x != 0) return;
                if (!back) weight_before = weights[token];
                weights[token] = back ? weight_before : 0.0f;
                return;
            }
            for (int j = static_cast<int>(threadIdx.x); j < node.support; j += threads) {
                float& one = weights[node.first_id < 0 ? j : op.ids[node.first_id + j]];
                if (!back) saved[j] = one;
                one = back ? saved[j] : fmaxf(0.0f, one - q[j] * scale);
            }
        };
        change(false);
        const TileRun rest = node.support == 0 ? add_changed(op.vocab, token, shared.draw, weight)
                                               : add_tiles(op.vocab, shared.draw, weight);
        if (rest.all > 0) {
            run = rest;
        } else {
            // Only rounding can leave nothing; the previous weights are kept then.
            __syncthreads();
            change(true);
            run = add_tiles(op.vocab, shared.draw, weight);
        }
        if (index < 0) continue;
        if (threadIdx.x == 0) q[index] = 0;
        __syncthreads();
        left = block_total(q, node.support, shared);
    }
    int bonus = -1;
    if (accepted < 0 && node.drafts > 0)
        bonus = sample_column(op.vocab, shared.draw, run, node.uniform * run.all, weight);
    if (threadIdx.x != 0) return;
    op.accepted[blockIdx.x] = accepted;
    op.bonus[blockIdx.x] = bonus;
    op.bonus_logits[blockIdx.x] = bonus < 0 ? 0.0f : logits[bonus];
}

}  // namespace

void launch(const RejectionSampleOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count == 0) return;
    DS_LAUNCH(rejection_sample_kernel, static_cast<unsigned>(op.count), threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
