#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/topk.h"

/// Work on rows in host memory, on threads of the host. Engine code uses it for what no round waits for; ops
/// that run in a round are in kernels/ops.
namespace draftscope::kernels {

/// y[M, N] = x[M, K] * W[N, K]^T (+ bias[N] when not null). Weights are read once for all M rows.
void matmul(ThreadPool& pool, const Matrix& weights, Rows<const float> x, Rows<float> y,
            const float* bias = nullptr);

/// out[m] = log(sum_j exp(x[m, j])), summed in a fixed order.
void logsumexp(ThreadPool& pool, Rows<const float> x, std::span<float> out);

/// Finds the k largest values of each row, descending, ties to the lower index. Requires k <= cols. Both ids
/// and values are [M, k].
void topk(ThreadPool& pool, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values);

/// Index of the largest value of each row, ties to the lower index.
void argmax(ThreadPool& pool, Rows<const float> x, std::span<std::int32_t> out);

/// out[j] = exp((x[j] - shift) * scale), with a relative error of about 1e-7, at most e^88. A NaN counts as
/// exp(-inf). Runs on the calling thread; `pool` selects the instruction set. `out` may be x.
void exp_row(const ThreadPool& pool, std::span<const float> x, float shift, float scale,
             std::span<float> out);

/// Rounds each value to the 16-bit format of the backend (Backend::dtype()); bf16 on the CPU.
void cast_to_dtype(Backend& backend, Rows<float> x);

/// Buffers of the functions below; reuse them between calls.
struct SampleScratch {
    std::vector<float> tops, sums;  ///< maxima of rows, and sums of their blocks
    std::vector<std::int32_t> best, more;
    std::vector<float> values;                        ///< logits of `best` or `more`
    std::vector<std::vector<std::int32_t>> selected;  ///< by thread: tokens of a row, ascending
};

/// A null `logsumexp` is not computed.
void select_topk(ThreadPool& pool, const TopKOp& op);
void mask_top_k_top_p(ThreadPool& pool, const TopKTopPMaskOp& op, SampleScratch& scratch);
void sample(ThreadPool& pool, const SampleOp& op, SampleScratch& scratch);

/// The distribution of a row of logits after temperature, top-k and top-p.
struct RowDistribution {
    float inv_temperature = 1;
    float log_norm = 0;   ///< log of the sum of exp(logit * inv_temperature) over the kept tokens
    float min_logit = 0;  ///< smallest logit kept by top-k and top-p; -inf if all are kept
    float probability(float logit) const;
};
/// Returns the probability of the tokens `ids`, at most 1. Runs on the calling thread; `pool` selects the
/// instruction set.
float set_probability(const ThreadPool& pool, const float* logits, std::span<const std::int32_t> ids,
                      const RowDistribution& row);
/// Returns the entropy of a row as EntropyOp defines it.
double entropy(std::span<const float> logits, const RowDistribution& row);

/// A draft distribution q over a row's tokens. After temperature, top-k and top-p it adds up to 1.
struct DraftProbs {
    std::span<float> probs;
    std::span<const std::int32_t> ids = {};  ///< each once; empty = probs[i] is of token i
    std::int32_t id_at(std::size_t index) const {
        return ids.empty() ? static_cast<std::int32_t>(index) : ids[index];
    }
};
/// Buffers for sampling drafts from one row at a time; reuse them between calls.
struct DraftSampleScratch {
    std::vector<std::uint32_t> order;  ///< entries of q, best first
    std::vector<double> sums;          ///< of q's blocks
    std::vector<std::size_t> sampled;  ///< entries sampled so far
};
/// Converts q, whose probs are logits on entry: softmax(logits / temperature) over its tokens, then top-k,
/// then top-p. Ties go to the lower token. NaN has probability 0.
void make_distribution(const ThreadPool& pool, double temperature, int top_k, double top_p,
                       DraftSampleScratch& scratch, const DraftProbs& q);

}  // namespace draftscope::kernels
