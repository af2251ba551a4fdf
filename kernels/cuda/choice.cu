#include <cmath>

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.h"

/// Ops of verification on the target's logits, so that the logits stay on the device.
namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = sample_threads;
constexpr int warps = sample_warps;

/// One block per row.
__global__ void __launch_bounds__(threads) sample_kernel(const SampleOp op) {
    DS_SHARED(SampleShared, shared);
    DS_SHARED(float[warps], maxima);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const float* logits = op.logits + row * op.stride;
    const float max_value = block_largest<warps>(logits, op.vocab, maxima);
    const bool any = max_value != -INFINITY, cut = op.mask.min_logit != nullptr;
    const float min_logit = cut ? op.mask.min_logit[row] : -INFINITY;
    const int last = cut ? op.mask.last_tied_id[row] : op.vocab;
    const ColumnWeights weight{
        [&](int i) { return i < op.vocab ? logits[i] : -INFINITY; },
        [&](int i, float value) {
            if (cut && !(value > min_logit || (value == min_logit && i <= last))) return 0.0f;
            return any && value == value ? expf((value - max_value) * op.inv_temperature) : 0.0f;
        }};
    const TileRun run = add_tiles(op.vocab, shared, weight);
    const int token = sample_column(op.vocab, shared, run, op.uniforms[row] * run.all, weight);
    if (threadIdx.x != 0) return;
    op.tokens[row] = token;
    op.values[row] = logits[token];
    op.log_norm[row] =
        run.all > 0 ? logf(static_cast<float>(run.all)) + max_value * op.inv_temperature : 0.0f;
}

/// One block per row, after the top-k and top-p mask.
__global__ void __launch_bounds__(threads, 1)
    sample_without_replacement_kernel(const SampleWithoutReplacementOp op, bool cut) {
    DS_SHARED(SampleShared, shared);
    DS_SHARED(float[warps], maxima);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    float* q = op.logits + row * op.stride;
    const int support = op.sizes == nullptr ? op.support : op.sizes[row];
    const float max_value = block_largest<warps>(q, support, maxima);
    const bool any = max_value != -INFINITY;
    const float min_logit = cut ? op.min_logit[row] : -INFINITY;
    const int last = cut ? op.last_tied_id[row] : support;
    const auto scale = static_cast<float>(1.0 / op.temperature);
    __syncthreads();  // all threads have read the logits
    const int thread = static_cast<int>(threadIdx.x);
    const auto old = [&](int i) { return q[i]; };
    for_columns(thread, threads, support, old, [&](int i, float value) {
        const bool selected = value > min_logit || (value == min_logit && i <= last);
        q[i] = any && selected ? expf((value - max_value) * scale) : 0.0f;
    });
    // Sampled columns are negated until all samples are taken.
    const ColumnWeights weight{[&](int i) { return i < support ? q[i] : 0.0f; },
                               [](int, float value) { return fmaxf(value, 0.0f); }};
    TileRun run = add_tiles(support, shared, weight);
    const auto share = static_cast<float>(run.all > 0 ? 1.0 / run.all : 0.0);
    for_columns(thread, threads, support, old, [&](int i, float value) { q[i] = value * share; });
    std::int32_t* ids = op.ids + row * op.k;
    int column = -1;
    run = add_tiles(support, shared, weight);
    for (int d = 0; d < op.k; ++d) {
        if (column >= 0) run = add_changed(support, column, shared, weight);
        const bool left = run.all > 0;  // uniform across the block
        column =
            left ? sample_column(support, shared, run, op.uniforms[row * op.k + d] * run.all, weight) : -1;
        __syncthreads();  // the thread that read the weights is done
        if (threadIdx.x != 0) continue;
        ids[d] = column;
        op.logprobs[row * op.k + d] = left ? logf(q[column]) : -INFINITY;
        if (left) q[column] = -q[column];
    }
    __syncthreads();
    if (thread >= op.k || ids[thread] < 0) return;
    const int sampled = ids[thread];
    q[sampled] = -q[sampled];
    if (op.tokens != nullptr) ids[thread] = op.tokens[row * op.stride + sampled];
}

/// Grid: rows, chunks of `threads` columns.
__global__ void __launch_bounds__(threads) gather_columns_kernel(const GatherColumnsOp op) {
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int i = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    const int size = op.sizes == nullptr ? op.max_count : op.sizes[row];
    if (i >= size) return;
    const int column = op.columns[op.tokens[row * op.token_stride + i]];
    op.out[row * op.out_stride + i] = op.logits[row * op.stride + column];
}

/// One thread per token.
__global__ void __launch_bounds__(threads) value_kernel(const RankOp op) {
    const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
    if (i < op.count)
        op.values[i] = op.logits[static_cast<std::int64_t>(op.rows[i]) * op.stride + op.tokens[i]];
}

/// One block per token.
__global__ void __launch_bounds__(threads) rank_kernel(const RankOp op) {
    DS_SHARED(int[warps], counts);
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

/// One block per sum; grid: the largest count, ops.
__global__ void __launch_bounds__(threads)
    set_probability_kernel(const __grid_constant__ Many<SetProbabilityOp> many) {
    const SetProbabilityOp& op = many.ops[blockIdx.y];
    DS_SHARED(float[warps], sums);
    const int i = static_cast<int>(blockIdx.x);
    if (i >= (op.d_count == nullptr ? op.count : *op.d_count)) return;
    const std::int64_t row = op.first_row + op.rows[i];
    const float* logits = op.logits + row * op.stride;
    const float norm = op.log_norm[row];
    const float min_logit = op.min_logit == nullptr ? -INFINITY : op.min_logit[row];
    const std::int32_t* ids = op.ids + op.first[i];
    float sum = 0;
    for (int j = static_cast<int>(threadIdx.x); j < op.size[i]; j += threads) {
        const float logit = logits[ids[j]];
        if (logit >= min_logit) sum += expf(logit * op.inv_temperature - norm);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) sums[threadIdx.x / warp_size] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float all = 0;
    for (int w = 0; w < warps; ++w) all += sums[w];
    op.out[i] = all;
}

/// One block per row. A thread's columns, and so the order of all sums, are the same in every call.
__global__ void __launch_bounds__(threads) entropy_kernel(const EntropyOp op) {
    DS_SHARED(double[warps], sums);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const float* logits = op.logits + row * op.stride;
    const float norm = op.log_norm[row];
    const float min_logit = op.min_logit == nullptr ? -INFINITY : op.min_logit[row];
    float local_sum = 0;
    for_columns(
        static_cast<int>(threadIdx.x), threads, op.vocab, [&](int i) { return logits[i]; },
        [&](int, float logit) {
            if (!(logit >= min_logit)) return;
            const float p = token_probability(logit, op.inv_temperature, norm, min_logit);
            local_sum -= p * logf(p + entropy_floor);
        });
    const double sum = warp_sum(static_cast<double>(local_sum));
    if (threadIdx.x % warp_size == 0) sums[threadIdx.x / warp_size] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double all = 0;
    for (int w = 0; w < warps; ++w) all += sums[w];
    op.out[row] = static_cast<float>(all);
}

}  // namespace

void launch(const SampleWithoutReplacementOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const bool cut = op.top_p < 1 || (op.top_k > 0 && op.top_k < op.support);
    if (cut)
        launch(TopKTopPMaskOp{op.logits, op.stride, op.rows, op.support,
                              static_cast<float>(1.0 / op.temperature), op.top_k, op.top_p, op.min_logit,
                              op.last_tied_id, op.sizes},
               dtype, stream);
    DS_LAUNCH(sample_without_replacement_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op, cut);
}

void launch(const GatherColumnsOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0 || op.max_count == 0) return;
    const auto pieces = static_cast<unsigned>((op.max_count + threads - 1) / threads);
    DS_LAUNCH(gather_columns_kernel, (dim3(static_cast<unsigned>(op.rows), pieces)), threads, 0, stream, op);
}

void launch(const SampleOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(sample_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op);
}

void launch(const RankOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count == 0) return;
    if (op.ranks == nullptr)
        DS_LAUNCH(value_kernel, static_cast<unsigned>((op.count + threads - 1) / threads), threads, 0, stream,
                  op);
    else
        DS_LAUNCH(rank_kernel, static_cast<unsigned>(op.count), threads, 0, stream, op);
}

void launch(std::span<const SetProbabilityOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<SetProbabilityOp>& many, unsigned count) {
        int sets = 0;
        for (unsigned i = 0; i < count; ++i) sets = std::max(sets, many.ops[i].count);
        if (sets == 0) return;
        DS_LAUNCH(set_probability_kernel, (dim3(static_cast<unsigned>(sets), count)), threads, 0, stream,
                  many);
    });
}

void launch(const EntropyOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(entropy_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
