#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/spans.h"
#include "engine/tree/draft_tree.h"
#include "kernels/exec.h"

namespace draftscope {

/// Sampling settings of the target.
struct Sampling {
    double temperature = 0;  ///< 0 = greedy
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
    std::uint64_t seed = 0;
};

/// Returns 1 / temperature, bounded against overflow.
float inverse_temperature(const Sampling& sampling);

/// The target's token after one node.
struct TargetSample {
    TokenId token = no_token;  ///< the token that the target emits after the node
    float prob = 0;            ///< its probability (softmax of raw logits when greedy)
    /// Parameters of the row's distribution, for looking up other tokens without a second pass: see
    /// target_probability().
    float log_norm = 0;   ///< log of the sum of exp(logit / temperature) over the kept tokens
    float min_logit = 0;  ///< smallest logit kept by top-k and top-p; -inf if all are kept
};
/// Returns the probability of a token with raw logit `logit` in the row of `choice`.
float target_probability(const TargetSample& choice, const Sampling& sampling, float logit);

/// Position of a token in a run. Together with the seed it determines the random number.
struct TokenPosition {
    std::uint64_t sequence = 0;
    std::int64_t position = 0;  ///< absolute, 0 = first prompt token
};

/// Buffers of sample_tokens(); reuse them between calls.
struct TargetSampleScratch {
    std::vector<float> tops, sums;    ///< maxima and sums of rows, and of their blocks
    std::vector<TokenId> best, more;  ///< tokens that top-k and top-p may keep
    std::vector<float> values;        ///< logits of these tokens
};

/// Chooses the target's token for each row of `logits` [rows, vocab padded]. Greedy: argmax, ties to the
/// lower id. Otherwise: inverse CDF in id order with token_uniform(seed, places[row]). `vocab` excludes
/// padding columns. Sampling applies temperature, then top-k, then top-p: the smallest set of the remaining
/// tokens that reaches it, best first, ties to the lower id.
void sample_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> places, TargetSampleScratch& scratch,
                   std::vector<TargetSample>& out);
/// Same as above, with temporary buffers.
void sample_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> places, std::vector<TargetSample>& out);

/// Acceptance rules.
enum class VerifyRule {
    match,    ///< exact match: the text equals autoregressive decoding
    pq,       ///< rejection sampling of sampled drafts: lossless in distribution
    typical,  ///< Medusa's typical acceptance: lossy
};
/// Parsed `--verify` text. Defaults of typical acceptance are those of Medusa's code: epsilon 0.09
/// (posterior_threshold) and delta 0.3 (posterior_alpha), delta = sqrt(epsilon).
struct VerifySpec {
    VerifyRule rule = VerifyRule::match;
    double epsilon = 0.09;
    double delta = 0.3;
    bool operator==(const VerifySpec&) const = default;
};
/// Parses "match", "pq", "typical" or "typical:epsilon=0.09,delta=0.3".
Result<VerifySpec> parse_verify_spec(std::string_view text);
std::string to_text(const VerifySpec& spec);
/// Returns the rule in effect. At temperature 0 every published rule is greedy exact match.
inline VerifyRule rule_at(const VerifySpec& spec, double temperature) {
    return temperature > 0 ? spec.rule : VerifyRule::match;
}

/// Result of verifying one tree.
struct Acceptance {
    std::vector<int> path;     ///< accepted nodes, root first; accepted drafts = path.size() - 1
    TokenId bonus = no_token;  ///< emitted after the last accepted node
};
/// Buffers for verifying one tree at a time; reuse them between calls.
struct AcceptScratch {
    // Typical acceptance, by node.
    std::vector<double> thresholds, likelihoods;
    std::vector<char> inner, accepted;
    std::vector<std::size_t> wanted;  ///< inner nodes whose children are tried next
    // Rejection sampling, by token: the residual of p, and the rest of q.
    std::vector<float> weights, rest, left;
    std::vector<double> sums, rest_sums;  ///< by block
};
/// All rules write to `out`, which keeps its memory.
/// Exact match (DESIGN section 3): follows the child whose token is the target's choice.
void accept_match(const DraftTree& tree, std::span<const TargetSample> choices, Acceptance& out);

/// The target's logits over a tree, [nodes, vocab] without padding.
struct TreeLogits {
    Rows<const float> logits;
    const Sampling& sampling;
};
/// Typical acceptance (Medusa, arXiv 2401.10774): accepts a draft if p(x) > min(epsilon, delta exp(-H(p)))
/// and its parent is accepted. The longest such path wins, then the likeliest; the bonus is the target's best
/// token. Takes `choices` of sample_tokens() and replaces them by the tokens that this rule emits.
void accept_typical(kernels::Exec& exec, const VerifySpec& spec, const DraftTree& tree,
                    const TreeLogits& rows, std::span<TargetSample> choices, AcceptScratch& scratch,
                    Acceptance& out);

/// What a device computed from the target's logits, in place of the logits. These are the inputs of typical
/// acceptance and rejection sampling, by node.
struct TreeVerdictInputs {
    const Sampling& sampling;
    std::span<const float> draft_logits;  ///< logit of a node's token in its parent's row; unused at the root
    std::vector<TokenId> best;            ///< typical: best token of each row
    std::vector<float> best_logits;       ///< typical: logit of `best`
    std::span<const float> entropies;     ///< typical: entropy of each row
    std::vector<int> accepted;            ///< pq: the accepted child of each node; -1 = none
    std::vector<TokenId> bonus;           ///< pq: the token after the node; no_token = the target's choice
    std::vector<float> bonus_logits;
};
void accept_typical(const VerifySpec& spec, const DraftTree& tree, const TreeVerdictInputs& verdict,
                    std::span<TargetSample> choices, Acceptance& out);
/// Same as above, given the last node of the path.
void accept_typical(int last, const DraftTree& tree, const TreeVerdictInputs& verdict,
                    std::span<TargetSample> choices, Acceptance& out);
void accept_pq(const DraftTree& tree, const TreeVerdictInputs& verdict, std::span<TargetSample> choices,
               Acceptance& out);

/// Rejection sampling (Leviathan et al. 2023) in its form for trees sampled without replacement (EAGLE-1).
/// Tries a node's children in sampling order and accepts each with probability min(1, p/q). A rejection sets
/// p := norm(max(0, p - q)) and removes the draft from q. The bonus is sampled from the residual of p.
/// Without sampled drafts, q = 1. `place` is the position of the token after the root; `choices` as in
/// accept_typical(). Requires temperature > 0.
void accept_pq(const kernels::Exec& exec, const DraftTree& tree, const TreeLogits& rows,
               const TokenPosition& place, std::span<TargetSample> choices, AcceptScratch& scratch,
               Acceptance& out);

}  // namespace draftscope
