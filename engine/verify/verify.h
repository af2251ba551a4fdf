#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "engine/tree/draft_tree.h"
#include "kernels/exec.h"

namespace draftscope {

struct Sampling {
    double temperature = 0;  ///< 0 = greedy
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
    std::uint64_t seed = 0;
};

struct TargetChoice {
    TokenId token = no_token;  ///< what the target emits after the node
    float prob = 0;            ///< its probability (softmax of raw logits when greedy)
    /// The row's distribution, kept so that other tokens can be looked up without a second pass: see
    /// probability_of().
    float log_norm = 0;  ///< log of the sum of exp(logit / temperature) over the kept tokens
    float lowest = 0;    ///< smallest kept logit (top-k, top-p); -inf when nothing was cut
};
/// Probability of a token with raw logit `logit` in the row that `choice` was drawn from.
float probability_of(const TargetChoice& choice, const Sampling& sampling, float logit);

/// The one token the target draws after each row of `logits` [rows, vocab padded]: argmax (ties to the lower
/// id), or inverse-CDF in id order with token_uniform(seed, sequence, position). `vocab` hides padding rows.
/// Sampling: temperature, then top-k, then top-p (smallest set of the remaining that reaches it, best first,
/// ties to the lower id).
void choose_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::uint64_t sequence, std::span<const std::int64_t> positions,
                   std::vector<TargetChoice>& out);

struct Acceptance {
    std::vector<int> path;     ///< accepted nodes, root first; accepted drafts = path.size() - 1
    TokenId bonus = no_token;  ///< emitted after the last accepted node
};
/// Exact match (DESIGN section 3): follow the child whose token is the target's own choice.
Acceptance accept_match(const DraftTree& tree, std::span<const TargetChoice> choices);

}  // namespace draftscope
