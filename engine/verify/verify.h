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

struct Sampling {
    double temperature = 0;  ///< 0 = greedy
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
    std::uint64_t seed = 0;
};

/// Held where it would overflow.
float inverse_temperature(const Sampling& sampling);

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

/// Which token of a run is drawn: its random number depends on this and the seed alone.
struct TokenPlace {
    std::uint64_t sequence = 0;
    std::int64_t position = 0;  ///< absolute, 0 = first prompt token
};

/// What draws are made with; whoever draws again and again keeps it for its memory.
struct ChoiceScratch {
    std::vector<float> tops, sums;    ///< of rows, and of their blocks
    std::vector<TokenId> best, more;  ///< tokens that top-k and top-p may leave
    std::vector<float> values;        ///< their logits
};

/// The one token the target draws after each row of `logits` [rows, vocab padded]: argmax (ties to the lower
/// id), or inverse-CDF in id order with token_uniform(seed, places[row]). `vocab` hides padding rows.
/// Sampling: temperature, then top-k, then top-p (smallest set of the remaining that reaches it, best first,
/// ties to the lower id).
void choose_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPlace> places, ChoiceScratch& scratch,
                   std::vector<TargetChoice>& out);
/// The same in memory of its own.
void choose_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPlace> places, std::vector<TargetChoice>& out);

enum class VerifyRule {
    match,    ///< exact match: the text is the autoregressive one
    pq,       ///< rejection sampling of drawn drafts: lossless in distribution
    typical,  ///< Medusa's typical acceptance: lossy
};
/// Parsed `--verify` text. Thresholds of typical acceptance as in Medusa's published code: epsilon 0.09
/// (posterior_threshold) and delta 0.3 (posterior_alpha), delta = sqrt(epsilon).
struct VerifySpec {
    VerifyRule rule = VerifyRule::match;
    double epsilon = 0.09;
    double delta = 0.3;
    bool operator==(const VerifySpec&) const = default;
};
/// "match", "pq", "typical", "typical:epsilon=0.09,delta=0.3".
Result<VerifySpec> parse_verify_spec(std::string_view text);
std::string to_text(const VerifySpec& spec);
/// At temperature 0 every rule is greedy exact match: the published rules are, and there is nothing to draw.
inline VerifyRule rule_at(const VerifySpec& spec, double temperature) {
    return temperature > 0 ? spec.rule : VerifyRule::match;
}

struct Acceptance {
    std::vector<int> path;     ///< accepted nodes, root first; accepted drafts = path.size() - 1
    TokenId bonus = no_token;  ///< emitted after the last accepted node
};
/// What trees are judged with; whoever judges again and again keeps it for its memory. Of one tree at a time.
struct AcceptScratch {
    // Typical acceptance, by node.
    std::vector<double> thresholds, likelihoods;
    std::vector<char> inner, accepted;
    std::vector<std::size_t> wanted;  ///< inner nodes whose children are looked at next
    // Rejection sampling, by token: what is left of p, and of q.
    std::vector<float> weights, rest, left;
    std::vector<double> sums, rest_sums;  ///< by block
};
/// All rules leave what they accept in `out`, which keeps its memory.
/// Exact match (DESIGN section 3): follow the child whose token is the target's own choice.
void accept_match(const DraftTree& tree, std::span<const TargetChoice> choices, Acceptance& out);

/// The target's rows over a tree, [nodes, vocab] without padding.
struct VerifyRows {
    Rows<const float> logits;
    const Sampling& sampling;
};
/// Medusa (arXiv 2401.10774), typical acceptance: a draft is kept when p(x) > min(epsilon, delta exp(-H(p)))
/// after an accepted parent; the longest such path wins, of several the likeliest; the bonus is the target's
/// best token. `choices` as choose_tokens left them; afterwards they say what this rule emits.
void accept_typical(kernels::Exec& exec, const VerifySpec& spec, const DraftTree& tree,
                    const VerifyRows& rows, std::span<TargetChoice> choices, AcceptScratch& scratch,
                    Acceptance& out);

/// What a device says of the target's rows over a tree, instead of the rows: what typical acceptance and
/// rejection sampling need of them. By node.
struct JudgedTree {
    const Sampling& sampling;
    std::span<const float> draft_logits;  ///< of a node's token in its parent's row; the root's not looked at
    std::vector<TokenId> best;            ///< typical: each row's best token,
    std::vector<float> best_logits;       ///< its logit
    std::span<const float> entropies;     ///< and the row's entropy
    std::vector<int> accepted;            ///< pq: which of a node's children is kept, -1 = none
    std::vector<TokenId> bonus;           ///< and what follows then; no_token = the choice as it is
    std::vector<float> bonus_logits;
};
void accept_typical(const VerifySpec& spec, const DraftTree& tree, const JudgedTree& judged,
                    std::span<TargetChoice> choices, Acceptance& out);
/// The same where the path's last node is known.
void accept_typical(int last, const DraftTree& tree, const JudgedTree& judged,
                    std::span<TargetChoice> choices, Acceptance& out);
void accept_pq(const DraftTree& tree, const JudgedTree& judged, std::span<TargetChoice> choices,
               Acceptance& out);

/// Speculative sampling (Leviathan et al. 2023) and its form for trees drawn without replacement (EAGLE-1): a
/// node's children are tried in the order drawn, each kept with probability min(1, p/q); a rejection leaves p
/// := norm(max(0, p - q)) and takes the draft out of q; the bonus is drawn from what is left of p. A tree
/// that was not drawn has certain drafts, q = 1. `place` is that of the token after the root; `choices` as
/// for accept_typical; temperature > 0.
void accept_pq(const kernels::Exec& exec, const DraftTree& tree, const VerifyRows& rows,
               const TokenPlace& place, std::span<TargetChoice> choices, AcceptScratch& scratch,
               Acceptance& out);

}  // namespace draftscope
