#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/verify/verification.h"
#include "tests/support/draft_distribution.h"

/// Verifies single trees by the ops of a device, which may be the CPU, from complete rows of logits.
namespace draftscope::testing {

struct VerifiedTree {
    std::vector<TargetSample> choices;  ///< after each node
    Acceptance acceptance;
};

/// `logits` is [nodes, padded vocab]; `place` is that of the token after the root. Entry n of `drawn_from` is
/// the distribution that the children of node n were sampled from; empty or null = certain drafts.
VerifiedTree verify_tree(kernels::Backend& backend, const AcceptanceRule& rule, const DraftTree& tree,
                         Rows<const float> logits, int vocab, const Sampling& sampling,
                         const TokenPosition& place,
                         std::span<const std::shared_ptr<DraftDistribution>> drawn_from = {});

/// Accepts the drafts that equal the given choices.
Acceptance follow_choices(const DraftTree& tree, std::vector<TargetSample>& choices);

}  // namespace draftscope::testing
