#include <cmath>

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.h"

/// RedistributeOp and ReachableTokensOp: a sparse token affinity matrix applied to rows and to token sets.
namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = sample_threads;
constexpr int warps = sample_warps;

/// One block per row: scatters q over the vocabulary; tokens that are not columns get zero.
__global__ void __launch_bounds__(threads) scatter_kernel(const RedistributeOp op) {
    DS_SHARED(float[warps], maxima);
    DS_SHARED(double[warps], totals);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    const float* logits = op.logits + row * op.stride;
    const std::int32_t* tokens = op.tokens == nullptr ? nullptr : op.tokens + row * op.token_stride;
    double* q = op.scratch + row * op.vocab;
    const int count = op.sizes == nullptr ? op.support : op.sizes[row];
    for (int t = thread; t < op.vocab; t += threads) q[t] = 0;
    const float max_value = block_largest<warps>(logits, count, maxima);
    const auto weight = [&](int i) {
        const float value = logits[i];
        return max_value == -INFINITY || value != value
                   ? 0.0
                   : exp(static_cast<double>((value - max_value) / op.temperature));
    };
    double local_sum = 0;
    for (int i = thread; i < count; i += threads) local_sum += weight(i);
    local_sum = warp_sum(local_sum);
    if (thread % warp_size == 0) totals[thread / warp_size] = local_sum;
    __syncthreads();  // and clear q
    double sum = 0;
    for (int w = 0; w < warps; ++w) sum += totals[w];
    if (!(sum > 0)) return;  // uniform across the block
    for (int i = thread; i < count; i += threads) q[tokens == nullptr ? i : tokens[i]] = weight(i) / sum;
}

/// Grid: rows, chunks of `threads` tokens.
__global__ void __launch_bounds__(threads) redistribute_kernel(const RedistributeOp op) {
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int token = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    if (token >= op.vocab) return;
    const double* q = op.scratch + row * op.vocab;
    double mass = 0;
    for (std::int32_t i = op.first[token]; i < op.first[token + 1]; ++i)
        mass += q[op.sources[i]] * static_cast<double>(op.weights[i]);
    op.out[row * op.out_stride + token] =
        mass > 0 ? op.temperature * static_cast<float>(log(mass)) : -INFINITY;
}

/// One block: marks the set in a bitmap.
__global__ void __launch_bounds__(threads) set_bits_kernel(const ReachableTokensOp op) {
    const int words = bitmap_words(op.vocab), size = *op.size;
    for (int w = static_cast<int>(threadIdx.x); w < words; w += threads) op.bits[w] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < size; i += threads) {
        const std::int32_t token = op.tokens[i];
        atomicOr(op.bits + token / 32, 1u << (token % 32));
    }
}

/// Grid: chunks of `threads` tokens.
__global__ void __launch_bounds__(threads) reached_bits_kernel(const ReachableTokensOp op) {
    const int words = bitmap_words(op.vocab), lane = static_cast<int>(threadIdx.x) % warp_size;
    const int token = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
    bool reached = false;
    if (token < op.vocab)
        for (std::int32_t i = op.first[token]; i < op.first[token + 1] && !reached; ++i) {
            const std::int32_t giver = op.sources[i];
            reached = (op.bits[giver / 32] >> (giver % 32) & 1u) != 0;
        }
    const std::uint32_t word = warp_sum(reached ? 1u << lane : 0u);  // each lane sets a different bit
    if (lane == 0 && token < op.vocab) op.bits[words + token / 32] = word;
}

/// One block.
__global__ void __launch_bounds__(threads) list_reached_kernel(const ReachableTokensOp op) {
    DS_SHARED(int[warps], totals);
    const int words = bitmap_words(op.vocab);
    const int all =
        list_bits<warps>(op.bits + words, words, totals, [&](int at, int token) { op.out[at] = token; });
    if (threadIdx.x == 0) *op.out_size = all;
}

}  // namespace

void launch(const RedistributeOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0 || op.vocab == 0) return;
    const auto rows = static_cast<unsigned>(op.rows);
    const auto pieces = static_cast<unsigned>((op.vocab + threads - 1) / threads);
    DS_LAUNCH(scatter_kernel, rows, threads, 0, stream, op);
    DS_LAUNCH(redistribute_kernel, (dim3(rows, pieces)), threads, 0, stream, op);
}

void launch(const ReachableTokensOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.vocab == 0) return;
    const auto pieces = static_cast<unsigned>((op.vocab + threads - 1) / threads);
    DS_LAUNCH(set_bits_kernel, 1, threads, 0, stream, op);
    DS_LAUNCH(reached_bits_kernel, pieces, threads, 0, stream, op);
    DS_LAUNCH(list_reached_kernel, 1, threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
