#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/exec.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/topk.h"

/// Selection and sampling ops (kernels/ops) on rows in host memory, as the CPU runs them.
namespace draftscope::kernels {

/// Buffers of the functions below; reuse them between calls.
struct SampleScratch {
    std::vector<float> tops, sums;  ///< maxima of rows, and sums of their blocks
    std::vector<std::int32_t> best, more;
    std::vector<float> values;                    ///< logits of `best` or `more`
    std::vector<std::vector<std::int32_t>> kept;  ///< by thread: tokens of a row, ascending
};

/// A null `logsumexp` is not computed.
void select_topk(Exec& exec, const TopKOp& op);
void mask_top_k_top_p(Exec& exec, const TopKTopPMaskOp& op, SampleScratch& scratch);
void sample(Exec& exec, const SampleOp& op, SampleScratch& scratch);

/// The distribution of a row of logits after temperature, top-k and top-p.
struct RowDistribution {
    float inv_temperature = 1;
    float log_norm = 0;   ///< log of the sum of exp(logit * inv_temperature) over the kept tokens
    float min_logit = 0;  ///< smallest logit kept by top-k and top-p; -inf if all are kept
    float probability(float logit) const;
};
/// Returns the probability of the tokens `ids`, at most 1. Runs on the calling thread; `exec` selects the
/// instruction set.
float set_probability(const Exec& exec, const float* logits, std::span<const std::int32_t> ids,
                      const RowDistribution& row);
/// Returns the entropy of a row as EntropyOp defines it.
double entropy(std::span<const float> logits, const RowDistribution& row);

/// Returns the sum of at most 512 probabilities, using independent partial sums for instruction parallelism.
double sum_probabilities(std::span<const float> probs);
/// Columns per partial sum of sum_probabilities().
inline constexpr std::size_t probability_block = 512;

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
    std::vector<std::size_t> taken;    ///< entries sampled so far
};
/// Converts q, whose probs are logits on entry: softmax(logits / temperature) over its tokens, then top-k,
/// then top-p. Ties go to the lower token. NaN has probability 0.
void make_distribution(const Exec& exec, double temperature, int top_k, double top_p,
                       DraftSampleScratch& scratch, const DraftProbs& q);
/// Samples one token for each uniform without replacement, in sampling order. Writes the tokens and log q;
/// -1 after the last token with any weight.
void sample_drafts(const DraftProbs& q, std::span<const double> uniforms, DraftSampleScratch& scratch,
                   std::span<std::int32_t> ids, std::span<float> logprobs);

}  // namespace draftscope::kernels
