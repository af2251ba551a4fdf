#pragma once

#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/tree/sampled_drafts.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/host_rows.h"

/// Draft distributions of single rows, for tests.
namespace draftscope::testing {

/// q over a row's support, after temperature, top-k and top-p.
struct DraftDistribution {
    std::vector<TokenId> ids;  ///< empty = probs[i] is of token i
    std::vector<float> probs;  ///< sums to 1
    TokenId id_at(std::size_t index) const { return ids.empty() ? static_cast<TokenId>(index) : ids[index]; }
};

inline DraftDistribution distribution_of(std::vector<TokenId> ids, std::vector<float> logits,
                                         const DraftSampling& settings) {
    DraftDistribution q{std::move(ids), std::move(logits)};
    kernels::DraftSampleScratch scratch;
    kernels::make_distribution(*kernels::make_thread_pool(1), settings.temperature, settings.top_k,
                               settings.top_p, scratch, {q.probs, q.ids});
    return q;
}

/// A token sampled from q.
struct SampledToken {
    TokenId token = no_token;
    float logprob = 0;
};

/// Samples at most `count` tokens for a position, in sampling order.
inline std::vector<SampledToken> sample_drafts(DraftDistribution q, int count, const DraftSampling& settings,
                                               std::uint64_t sequence, std::int64_t position) {
    std::vector<double> uniforms;
    for (int order = 0; order < count; ++order)
        uniforms.push_back(draft_uniform(settings.seed, sequence, position, order));
    std::vector<TokenId> ids(uniforms.size());
    std::vector<float> logprobs(uniforms.size());
    kernels::DraftSampleScratch scratch;
    kernels::sample_drafts({q.probs, q.ids}, uniforms, scratch, ids, logprobs);
    std::vector<SampledToken> out;
    for (std::size_t i = 0; i < ids.size() && ids[i] >= 0; ++i) out.push_back({ids[i], logprobs[i]});
    return out;
}

}  // namespace draftscope::testing
