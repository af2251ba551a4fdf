#pragma once

#include <cstdint>

/// Sampling from rows of logits, rejection sampling, and measures of rows.
namespace draftscope::kernels {

/// Computes which tokens of each row top-k and then top-p keep. Top-p keeps the smallest set that reaches it,
/// best first, ties to the lower id. The result is a mask: logits above min_logit[row], and of those equal to
/// it the ids up to last_tied_id[row]. Weights exp((logit - largest) * inv_temperature) are added in
/// fixed_point_weight() units, so that their order does not matter. If nothing is masked, or no token has any
/// weight, min_logit is -inf and last_tied_id is vocab - 1.
struct TopKTopPMaskOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float inv_temperature = 1;
    int top_k = 0;                         ///< 0 = off
    double top_p = 1;                      ///< 1 = off
    float* min_logit = nullptr;            ///< [rows]
    std::int32_t* last_tied_id = nullptr;  ///< [rows]
    const std::int32_t* sizes = nullptr;   ///< [rows] columns of each row, replacing `vocab`; null = `vocab`
};
inline constexpr int fixed_point_bits = 42;  ///< the sum of 2^18 columns fits 60 bits
/// Converts a weight, at most 1, to whole units; NaN becomes 0.
constexpr std::uint64_t fixed_point_weight(float weight) {
    constexpr std::uint64_t max_weight = (std::uint64_t{1} << fixed_point_bits) - 1;
    if (!(weight > 0)) return 0;
    return weight >= 1 ? max_weight : static_cast<std::uint64_t>(weight * static_cast<float>(max_weight + 1));
}
/// Result of TopKTopPMaskOp: the tokens that each row keeps.
struct SamplingMask {
    const float* min_logit = nullptr;  ///< for each row; null = no mask
    const std::int32_t* last_tied_id = nullptr;
};

/// Samples a token of each row by inverse CDF in the order of ids, with weights exp(logit * inv_temperature).
/// NaN has no weight; a row without any weight returns token 0. Sums are added tile by tile in a fixed order,
/// whatever rows share the call.
struct SampleOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float inv_temperature = 1;         ///< 1 / temperature
    const double* uniforms = nullptr;  ///< [rows], in [0, 1)
    std::int32_t* tokens = nullptr;    ///< [rows]
    float* values = nullptr;           ///< [rows] logits of the sampled tokens
    float* log_norm = nullptr;         ///< [rows] log of the sum of all weights; 0 without any
    SamplingMask mask;                 ///< masked tokens have no weight
};
inline constexpr int sample_tile = 32;              ///< columns per partial sum
inline constexpr int max_sample_columns = 1 << 18;  ///< columns whose partial sums fit one block

/// Samples `k` columns of each row without replacement, in the order sampled. They come from q =
/// softmax(logits / temperature), restricted to the columns that top-k and then top-p keep (TopKTopPMaskOp).
struct SampleWithoutReplacementOp {
    float* logits = nullptr;  ///< [rows, stride]; the first `support` of each row become q
    std::int64_t stride = 0;
    int rows = 0, support = 0, k = 0;  ///< at most max_sample_columns and max_topk
    double temperature = 1;
    int top_k = 0;
    double top_p = 1;
    const double* uniforms = nullptr;  ///< [rows, k], in [0, 1)
    std::int32_t* ids = nullptr;       ///< [rows, k] columns; -1 after the last column with any weight
    float* logprobs = nullptr;         ///< [rows, k] log q of the columns, without taking out earlier samples
    float* min_logit = nullptr;        ///< [rows], scratch
    std::int32_t* last_tied_id = nullptr;  ///< [rows], scratch
    /// For rows with columns of their own: the number of valid columns [rows] and their tokens [rows,
    /// stride]. `ids` are tokens then. Null = all columns.
    const std::int32_t* sizes = nullptr;
    const std::int32_t* tokens = nullptr;
};

/// Gathers the logits of each row's candidates into contiguous columns. For i < sizes[m], out[m, i] is the
/// logit of token tokens[m, i], which column columns[token] of the row holds.
struct GatherColumnsOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, max_count = 0;
    const std::int32_t* tokens = nullptr;  ///< [rows, token_stride]
    std::int64_t token_stride = 0;
    const std::int32_t* sizes = nullptr;    ///< [rows], at most `max_count`; null = `max_count`
    const std::int32_t* columns = nullptr;  ///< for each token, its column
    float* out = nullptr;                   ///< [rows, out_stride]
    std::int64_t out_stride = 0;
    const std::uint64_t* index = nullptr;  ///< UniqueTokensOp's, or null; the CPU prefers it
};

/// A node of a draft tree whose children are verified by rejection sampling.
struct RejectionNode {
    std::int32_t row = 0;                      ///< row of the logits
    std::int32_t first_draft = 0, drafts = 0;  ///< in the order sampled
    std::int64_t first_prob = 0;               ///< of the node's q; not read if support is
                                               ///< 0
    std::int32_t support = 0;                  ///< 0 = the drafts were certain
    std::int64_t first_id = 0;                 ///< first of q's tokens, each once; -1 = entry i is token i
    double uniform = 0;                        ///< for sampling the bonus token if no draft is accepted
};
/// Speculative sampling at each node (Leviathan et al. 2023; trees sampled without replacement: EAGLE-1).
/// Draft i is accepted with probability min(1, p / q). A rejection sets p := norm(max(0, p - q)) and removes
/// the draft from q. p = exp(logit * inv_temperature - log_norm), at most 1; logits below the row's
/// `min_logit` have none.
struct RejectionSampleOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int vocab = 0, count = 0;
    float inv_temperature = 1;
    const float* log_norm = nullptr;       ///< for each row of the logits
    const float* min_logit = nullptr;      ///< for each row of the logits; null = no mask
    const RejectionNode* nodes = nullptr;  ///< [count]
    const std::int32_t* drafts = nullptr;
    const double* uniforms = nullptr;  ///< for each draft
    const std::int32_t* ids = nullptr;
    float* probs = nullptr;            ///< q, which adds up to 1; on return without the rejected drafts
    float* saved = nullptr;            ///< scratch, as many values as `probs`
    float* weights = nullptr;          ///< scratch, [count, vocab]
    std::int32_t* accepted = nullptr;  ///< [count] index of the accepted draft of the node; -1 = none
    std::int32_t* bonus = nullptr;     ///< [count] token sampled from the residual if no draft is accepted;
                                       ///< else -1
    float* bonus_logits = nullptr;     ///< [count]
};

/// Looks up the logits of given tokens and their ranks. The rank is the number of tokens before the token in
/// its row: larger logits, and equal logits with a lower id. Ranks cost a pass over the row; null skips them.
struct RankOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int vocab = 0, count = 0;
    const std::int32_t* rows = nullptr;    ///< [count]
    const std::int32_t* tokens = nullptr;  ///< [count]
    float* values = nullptr;               ///< [count]
    std::int32_t* ranks = nullptr;         ///< [count] or null
};

/// Sums the probability of token sets. Set i is ids[first[i]] .. ids[first[i] + size[i] - 1]; out[i] is the
/// sum of exp(logit * inv_temperature - log_norm) of row first_row + rows[i] over it. Logits below the row's
/// `min_logit` count as 0.
struct SetProbabilityOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int count = 0;  ///< upper bound of the number of sets
    float inv_temperature = 1;
    const float* log_norm = nullptr;     ///< for each row of the logits
    const std::int32_t* rows = nullptr;  ///< [count]
    const std::int32_t* first = nullptr;
    const std::int32_t* size = nullptr;
    const std::int32_t* ids = nullptr;
    float* out = nullptr;                   ///< [count]
    const float* min_logit = nullptr;       ///< for each row of the logits; null = no mask
    int first_row = 0;                      ///< added to `rows`
    const std::int32_t* d_count = nullptr;  ///< number of sets, in device memory; null = count
};

/// Computes the entropy of each row as Medusa's code does: -sum(p * log(p + 1e-5)). p = exp(logit *
/// inv_temperature - log_norm), at most 1. Logits below the row's `min_logit` count as 0.
struct EntropyOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float inv_temperature = 1;
    const float* log_norm = nullptr;   ///< [rows]
    const float* min_logit = nullptr;  ///< [rows]; null = no mask
    float* out = nullptr;              ///< [rows]
};
inline constexpr float entropy_floor = 1e-5f;  ///< keeps the logarithm of an impossible token finite

/// Redistributes the probability of a row's columns over the vocabulary by a sparse affinity matrix. With q =
/// softmax(logits / temperature), out[m, t] = temperature * log(sum of q * weight over the sources of t, in
/// their order). Tokens without a source get -inf.
struct RedistributeOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, support = 0;
    const std::int32_t* sizes = nullptr;   ///< [rows] valid columns, replacing `support`; null = all
    const std::int32_t* tokens = nullptr;  ///< tokens of the columns, each once; null = column numbers
    std::int64_t token_stride = 0;         ///< between the tokens of rows; 0 = shared by all rows
    float temperature = 1;
    int vocab = 0;
    // Transposed affinity matrix: the sources of token t are sources[first[t]] .. sources[first[t + 1] - 1].
    const std::int32_t* first = nullptr;
    const std::int32_t* sources = nullptr;
    const float* weights = nullptr;
    /// The same matrix by source: token s gives weight target_weights[i] to targets[i], if target_first[s] <=
    /// i < target_first[s + 1]. The CPU needs it, because it reads only the rows of the columns' tokens.
    const std::int32_t* target_first = nullptr;
    const std::int32_t* targets = nullptr;
    const float* target_weights = nullptr;
    double* scratch = nullptr;  ///< [rows, vocab]
    float* out = nullptr;       ///< [rows, out_stride]
    std::int64_t out_stride = 0;
};

/// Lists all tokens that receive probability from any token in the set, in ascending order. These are the
/// tokens that RedistributeOp can propose for a row over that set.
struct ReachableTokensOp {
    const std::int32_t* tokens = nullptr;  ///< tokens of the set, each once
    const std::int32_t* size = nullptr;    ///< [1]
    int max_count = 0;                     ///< upper bound of `size`
    int vocab = 0;
    const std::int32_t* first = nullptr;  ///< as in RedistributeOp
    const std::int32_t* sources = nullptr;
    std::uint32_t* bits = nullptr;     ///< [2, ceil(vocab / 32)], scratch
    std::int32_t* out = nullptr;       ///< [vocab]
    std::int32_t* out_size = nullptr;  ///< [1]
};

}  // namespace draftscope::kernels
