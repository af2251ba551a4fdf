#pragma once

#include <cstdint>
#include <vector>

#include "base/job_hooks.h"
#include "base/result.h"
#include "base/spans.h"
#include "kernels/backend.h"

namespace draftscope::fit {

/// A sparse row-stochastic matrix M for out-of-vocabulary redistribution, q'' = q' M (RDK, arXiv 2506.03206).
struct AffinityMatrix {
    int width = 0;                         ///< neighbours per row
    std::vector<std::int32_t> neighbours;  ///< [rows, width]
    std::vector<float> weights;            ///< [rows, width], each row sums to 1
};

/// The paper's construction of M could not be confirmed, so all of this is our default. Each token keeps
/// `keep` of its probability and shares the rest among its width - 1 nearest tokens by cosine of LM-head
/// rows, in proportion to softmax(cosine / temperature). A token is its own first neighbour.
struct AffinityOptions {
    int width = 8;
    double keep = 0.9;
    double temperature = 0.1;
};
Result<AffinityMatrix> token_affinity(kernels::Backend& backend, Rows<const float> weights,
                                      const AffinityOptions& options, const JobHooks& hooks);

}  // namespace draftscope::fit
