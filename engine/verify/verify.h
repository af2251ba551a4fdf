#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/spans.h"
#include "engine/tree/draft_tree.h"
#include "kernels/backend.h"

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
/// Returns whether top-k or top-p can leave out tokens.
bool masks_tokens(const Sampling& sampling, int vocab);

/// The target's token after one node.
struct TargetSample {
    TokenId token = no_token;  ///< the token that the target emits after the node
    float prob = 0;            ///< its probability (softmax of raw logits when greedy)
    /// Parameters of the row's distribution, for looking up other tokens without a second pass: see
    /// target_probability().
    float log_norm = 0;   ///< log of the sum of exp(logit / temperature) over the kept tokens
    float min_logit = 0;  ///< smallest logit kept by top-k and top-p; -inf if all are kept
    float logit = 0;      ///< of the token
    /// Returns false if the row has no finite logit, or an infinite one.
    bool is_number() const { return std::isfinite(logit) && std::isfinite(log_norm); }
};
/// Returns whether a value is NaN.
bool has_nan(std::span<const float> logits);
/// Returns the error about a row of logits that are not numbers. `position` is that of the row's token.
Error not_numbers(std::string_view prompt, std::int64_t position);
/// Returns the probability of a token with raw logit `logit` in the row of `choice`.
float target_probability(const TargetSample& choice, const Sampling& sampling, float logit);

/// Position of a token in a run. Together with the seed it determines the random number.
struct TokenPosition {
    std::uint64_t sequence = 0;
    std::int64_t position = 0;  ///< absolute, 0 = first prompt token
};

/// Chooses the target's token for each row of `logits` [rows, vocab padded]. Greedy: argmax, ties to the
/// lower id. Otherwise: inverse CDF in id order with token_uniform(seed, positions[row]). `vocab` excludes
/// padding columns. Sampling applies temperature, then top-k, then top-p: the smallest set of the remaining
/// tokens that reaches it, best first, ties to the lower id. Allocates; a step asks for its choices with a
/// LogitsQuery.
void sample_tokens(kernels::Backend& backend, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> positions, std::vector<TargetSample>& out);

}  // namespace draftscope
