#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "kernels/exec.h"

/// Drafts sampled from the draft distribution q, as rejection sampling (`--verify pq`) requires.
namespace draftscope {

/// q over a row's support, after temperature, top-k and top-p.
struct DraftDistribution {
    std::vector<TokenId> ids;  ///< empty = probs[i] is of token i
    std::vector<float> probs;  ///< sums to 1
    TokenId id_at(std::size_t index) const { return ids.empty() ? static_cast<TokenId>(index) : ids[index]; }
};

/// Settings for sampling drafts.
struct DraftSampling {
    double temperature = 1.0;  ///< > 0
    std::uint64_t seed = 0;
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
};

/// A token sampled from q.
struct SampledToken {
    TokenId token = no_token;
    float logprob = 0;  ///< log q, without removing earlier samples
};

/// Buffers for sampling one row at a time; reuse them between calls.
struct DraftSampleScratch {
    std::vector<std::uint32_t> order;  ///< entries of q, best first
    std::vector<double> uniforms;      ///< one per sample
    std::vector<double> sums;          ///< of q's blocks
    std::vector<std::size_t> taken;    ///< entries sampled so far
    std::vector<SampledToken> drawn;
};

/// Converts q, whose probs are logits on entry: softmax(logits / temperature) over its support, then top-k,
/// then top-p. The order is that of the target's rows (sample_tokens()), because drafts that the target
/// cannot emit would only be rejected. The output distribution does not depend on q. NaN has probability 0.
void make_distribution(const kernels::Exec& exec, const DraftSampling& settings, DraftSampleScratch& scratch,
                       DraftDistribution& q);

/// Returns the sum of at most 512 probabilities, using independent partial sums for instruction parallelism.
double sum_probabilities(std::span<const float> probs);

/// Samples `count` tokens of q without replacement, in sampling order; fewer if q has fewer. Random numbers
/// are keyed as in draft_uniform(), so that they do not depend on the batch. The result is stored in
/// `scratch`.
std::span<const SampledToken> sample_drafts(const DraftDistribution& q, int count,
                                            const DraftSampling& settings, std::uint64_t sequence,
                                            std::int64_t position, DraftSampleScratch& scratch);

/// Samples with the given uniform numbers, one per sample.
std::span<const SampledToken> sample_drafts(const DraftDistribution& q, std::span<const double> uniforms,
                                            DraftSampleScratch& scratch);

/// Uniform numbers in [0, 1), separate from token_uniform(): for sample `order` of a position and for its
/// acceptance. The key contains the position, so each number serves one decision, even if a later round
/// drafts the position again.
double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);
double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);

}  // namespace draftscope
