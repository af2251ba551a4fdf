#pragma once

#include <span>

#include "engine/transformer/target.h"
#include "engine/verify/verification.h"

namespace draftscope::testing {

/// A step of one sequence whose tree the target verifies by exact match.
struct TargetStep {
    RoundStep round;  ///< with the plan of the tree
    TargetLogits logits;
    LogitsResult answers;
    std::uint64_t bytes = 0;  ///< that the pass reads

    /// Runs the pass and waits once. `hidden` gets the final hidden states of the nodes [nodes, d].
    Status run(Target& target, KvCache& cache, const DraftTree& tree, const LogitsQuery& query,
               std::span<float> hidden);
};

}  // namespace draftscope::testing
