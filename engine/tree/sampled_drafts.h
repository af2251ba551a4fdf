#pragma once

#include <cstdint>

/// Drafts sampled from the draft distribution q, as rejection sampling (`--verify pq`) requires.
namespace draftscope {

/// Settings for sampling drafts from softmax(logits / temperature) over a row's support. Top-k and top-p
/// apply as for the target's rows, because drafts that the target cannot emit would only be rejected. The
/// output distribution does not depend on q.
struct DraftSampling {
    double temperature = 1.0;  ///< > 0
    std::uint64_t seed = 0;
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
};

/// Uniform numbers in [0, 1), separate from token_uniform(): for sample `order` of a position and for its
/// acceptance. The key contains the position, so each number serves one decision, even if a later round
/// drafts the position again.
double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);
double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);

}  // namespace draftscope
