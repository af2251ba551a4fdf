#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/float16.h"

/// Device ops: plain structs whose operands are addresses in device memory. Device code may include this
/// file. Every op keeps the contract of kernels/exec.h: a row's result depends only on that row's inputs.
namespace draftscope::kernels {

using half_t = std::uint16_t;  ///< upper half of a float; fp16 if the device's dtype() says so

/// Weights [n, k], row-major. `stride` is the distance between rows; columns k .. stride - 1 are zero.
struct DeviceMatrix {
    const half_t* data = nullptr;
    int n = 0;
    int k = 0;
    int stride = 0;
};
/// Row stride for `k` bf16 values: a multiple of 64, so that no kernel handles a remainder in k.
constexpr int padded_columns(int k) {
    return (k + 63) / 64 * 64;
}

/// y[m] = x[m] W^T (+ bias), for m < rows. With `accumulate`, the product is added to y.
struct MatmulOp {
    DeviceMatrix weights;
    const half_t* x = nullptr;  ///< [rows, weights.stride]
    int rows = 0;
    float* y = nullptr;  ///< [rows, y_stride >= outputs]
    std::int64_t y_stride = 0;
    const float* bias = nullptr;  ///< [n] or null
    bool accumulate = false;
    /// Selected outputs: column c of y is output chosen[c], for c < *chosen_count. Null = all outputs.
    const std::int32_t* chosen = nullptr;
    const std::int32_t* chosen_count = nullptr;
    int max_chosen = 0;  ///< upper bound of *chosen_count, known when the op is enqueued
};

/// Divides each group of `width` values by its root mean square and multiplies it by `weight` [width]. The
/// groups of a row are contiguous from x on.
struct RmsNormOp {
    const float* x = nullptr;  ///< [rows, x_stride]
    std::int64_t x_stride = 0;
    int rows = 0, groups = 1, width = 0;
    const float* weight = nullptr;
    float eps = 0;
    float* y = nullptr;  ///< [rows, y_stride] or null; may be x
    std::int64_t y_stride = 0;
    bool add = false;        ///< y += instead of y =
    half_t* half = nullptr;  ///< [rows, half_stride] or null: the result rounded to 16 bits, groups * width
                             ///< values per row
    int half_stride = 0;     ///< padding columns up to half_columns are set to zero
    int half_columns = 0;
};

/// Element-wise function applied to an op's input.
enum class Activation { none, silu, relu };

/// y = activation(x), rounded to bf16. Columns cols .. y_columns - 1 become zero.
struct CastOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    half_t* y = nullptr;
    std::int64_t y_stride = 0;
    int y_columns = 0;
    Activation activation = Activation::none;
};

/// y = base + activation(x), as in a residual block.
struct AddOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    Activation activation = Activation::none;
    const half_t* base = nullptr;  ///< [rows, base_stride]; null = add to y
    std::int64_t base_stride = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

/// y = silu(gate) * up for rows [gate | up] of 2 * width values, rounded to bf16 and padded with zeros.
struct SiluMulOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, width = 0;
    half_t* y = nullptr;
    int y_stride = 0;
};

/// KV cache of a sequence: for each layer a plane of keys [slots, kv_width], then a plane of values.
struct KvPlanes {
    half_t* data = nullptr;
    std::int64_t plane = 0;  ///< values per plane
    constexpr const half_t* keys(int layer) const { return data + 2 * layer * plane; }
    constexpr const half_t* values(int layer) const { return data + (2 * layer + 1) * plane; }
};

/// Cache slots, positions and visible keys of the rows of a pass; see AttentionQuery. Arrays are in device
/// memory.
struct AttentionBatch {
    const KvPlanes* caches = nullptr;        ///< [sequences]
    const std::int32_t* sequence = nullptr;  ///< [rows]
    const std::int32_t* slot = nullptr;      ///< [rows] the slot that takes the row's key
    const std::int32_t* position = nullptr;  ///< [rows]
    const std::int32_t* prefix = nullptr;    ///< [rows]
    const std::int32_t* ancestor_first = nullptr;
    const std::int32_t* ancestor_count = nullptr;
    const std::int32_t* ancestor_slots = nullptr;
    /// Runs of consecutive rows of one sequence that share reads of its keys: first row, rows; [tiles, 2].
    const std::int32_t* tiles = nullptr;
};
/// Head counts and size of an attention layer.
struct AttentionHeads {
    int heads = 0, kv_heads = 0, head_dim = 0;
};
/// Rows of an attention tile: about 16 (row, head) pairs share each key.
constexpr int attention_tile_rows(const AttentionHeads& shape) {
    const int group = shape.heads / shape.kv_heads;
    return group >= 16 ? 1 : 16 / group;
}
/// Logical positions covered by one partial sum of attention.
inline constexpr int attention_block = 64;

/// Applies RoPE to q and k, on half-split pairs, and stores k and v. Rows are [q | k | v]: q stays in place,
/// k and v are rounded and stored in the row's slot.
struct RopeStoreOp {
    float* qkv = nullptr;
    std::int64_t stride = 0;
    int rows = 0;
    AttentionHeads shape;
    const float* cos = nullptr;  ///< [positions, head_dim / 2]
    const float* sin = nullptr;
    AttentionBatch places;
    int layer = 0;
};

/// Softmax attention of rows over their cached keys and values; see kernels/attention.h.
struct AttentionOp {
    const float* q = nullptr;  ///< [rows, q_stride], with RoPE applied
    std::int64_t q_stride = 0;
    int first_row = 0, rows = 0;  ///< rows first_row .. first_row + rows - 1, covered by the tiles
    int tiles = 0;
    AttentionHeads shape;
    float scale = 1;
    AttentionBatch places;
    int layer = 0;
    int blocks = 0;  ///< at least ceil(positions / attention_block) of every row
    /// [rows, heads, blocks, head_dim + 2] partial sums, starting at first_row.
    float* partial = nullptr;
    half_t* y = nullptr;  ///< [rows, y_stride], padded with zeros
    int y_stride = 0;
};

/// Selects the k largest of the first `support` logits of each row, and log(sum(exp)) of all of them. The
/// order is descending, ties to the lower column. NaN counts as the smallest.
struct TopKOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, support = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k]
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows]
    void* scratch = nullptr;      ///< topk_scratch_bytes() bytes
    /// Per-row candidates: row m's are the tokens own[m * own_stride + i], i < support, ascending. The logit
    /// of token t is in column columns[t], or in column i if `columns` is null. Ids are tokens; negative
    /// tokens are skipped. Null = all columns in order.
    const std::int32_t* own = nullptr;
    std::int64_t own_stride = 0;
    const std::int32_t* columns = nullptr;
    /// Alternatively, row m's candidates are in `runs` runs of columns, the same number for every row. Run i
    /// ends before candidate run_ends[m * runs + i]; candidate p of it is column p + run_shifts[m * runs +
    /// i]. There are no candidates after the last end. Column c is token row_tokens[column_rows[c]]. Ids are
    /// tokens, and ties go to the lower token. Sums follow the order of candidates, not of columns.
    const std::int32_t* run_ends = nullptr;
    const std::int32_t* run_shifts = nullptr;
    int runs = 0;
    const std::int32_t* column_rows = nullptr;
    const std::int32_t* row_tokens = nullptr;
};
inline constexpr int topk_chunk = 4096;  ///< columns per block; partial sums follow these boundaries
inline constexpr int max_topk = 64;
/// Whether one block can merge the candidates of all chunks.
constexpr bool can_topk(int support, int k) {
    return k >= 1 && k <= max_topk && (support + topk_chunk - 1) / topk_chunk * k <= topk_chunk;
}
/// Bytes of scratch memory for TopKOp.
constexpr std::size_t topk_scratch_bytes(int rows, int support, int k) {
    const auto chunks = static_cast<std::size_t>((support + topk_chunk - 1) / topk_chunk);
    return static_cast<std::size_t>(rows) *
           (chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8) + sizeof(std::uint32_t));
}

/// A matmul fused with the selection of its k largest outputs; the logits are not written. The logits equal
/// MatmulOp's, bit for bit. The k best of the first `support` outputs of each row are ordered as in TopKOp;
/// logsumexp covers all of the first `support`.
struct MatmulTopKOp {
    DeviceMatrix weights;
    const half_t* x = nullptr;  ///< [rows, weights.stride]
    int rows = 0, support = 0, k = 0;
    const float* bias = nullptr;  ///< [n] or null
    std::int32_t* ids = nullptr;  ///< [rows, k], k <= support
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows]
    void* scratch = nullptr;      ///< matmul_topk_scratch_bytes() bytes
};
inline constexpr int matmul_topk_chunk = 256;  ///< outputs per block; partial sums follow these boundaries
/// Bytes of scratch memory for MatmulTopKOp.
constexpr std::size_t matmul_topk_scratch_bytes(int rows, int support, int k) {
    const auto chunks = static_cast<std::size_t>((support + matmul_topk_chunk - 1) / matmul_topk_chunk);
    return static_cast<std::size_t>(rows) * chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8);
}

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
};

/// Scores one level of a draft tree (EAGLE-2). Each of a row's k candidates gets the row's score plus its
/// log-probability. The best `keep` of the level, ties to the earlier candidate, become the rows of the next
/// level. Sampled candidates are scored by their order, -1 - order. Missing candidates (id < 0) and
/// everything after them get token 0 and score -inf, so that they sort last. If one still becomes a row, that
/// row duplicates the first valid row.
struct BeamOp {
    bool sampled = false;            ///< candidates are sampled; logits are log-probabilities then
    int level = 0, rows = 0, k = 0;  ///< rows * k <= max_beam; level 0 has one row with score 0
    /// A static tree: the candidates that are nodes, 1 or 0 [rows, k], and the rows of the next level [keep].
    /// Nodes have score 0, all others -inf. Null = select by score.
    const std::int32_t* static_mask = nullptr;
    const std::int32_t* static_next = nullptr;
    const std::int32_t* ids = nullptr;     ///< [rows, k], as MatmulTopKOp leaves them
    const float* logits = nullptr;         ///< [rows, k]
    const float* logsumexp = nullptr;      ///< [rows]
    bool shared_logits = false;            ///< ids, logits and logsumexp hold one row that all rows share
    const std::int32_t* tokens = nullptr;  ///< token of each id; null = ids are tokens
    std::int32_t* pool_tokens = nullptr;   ///< [rows, k]
    float* pool_logprobs = nullptr;        ///< [rows, k], at most 0; NaN becomes -inf
    int keep = 0;                          ///< at most max_topk; 0 = the last level
    int first_row = 0;                     ///< this sequence's first row in the pass
    int first_slot = 0;                    ///< first slot for the next level's keys, one slot per row
    float* scores = nullptr;               ///< [max_topk] row scores; on return the next level's
    std::int32_t* next_tokens = nullptr;   ///< [keep]
    std::int32_t* next_rows = nullptr;     ///< [keep] the row that proposed each, counted with first_row
    /// Slots of each row's tree ancestors and of the row: [rows, level] and, for the next level,
    /// [keep, level + 1].
    const std::int32_t* ancestor_slots = nullptr;
    std::int32_t* next_ancestor_slots = nullptr;
    // For RerankOp; null = not requested.
    float* pool_scores = nullptr;          ///< [rows, k]
    std::int32_t* pool_parents = nullptr;  ///< [rows, k] indices in the pool; -1 = the root
    std::int32_t* row_indices = nullptr;   ///< [max_topk] pool indices; updated like scores
    int first_index = 0;                   ///< index of the level's first candidate in the pool
    /// For sampled candidates, [rows, k]: the row that a candidate becomes, counted from next_first_row; -1 =
    /// none.
    std::int32_t* pool_rows = nullptr;
    int next_first_row = 0;
};
inline constexpr int max_beam = 4096;

/// Trees as rows of the target's pass: arrays over all rows of the step. Node i of a tree is row first + i.
struct TreeRows {
    std::int32_t* tokens = nullptr;
    std::int32_t* parents = nullptr;    ///< rows; a root is its own parent
    std::int32_t* positions = nullptr;  ///< as in AttentionBatch
    std::int32_t* ancestor_counts = nullptr;
    std::int32_t* ancestor_slots = nullptr;  ///< [rows, width] slots of a row's ancestors and of the row
    int width = 0;                           ///< at least the number of levels of the deepest tree
    float* logprobs = nullptr;
    std::int32_t* sampled_rows = nullptr;  ///< if sampled: the row that yielded a node's children
    // Inputs of sampling and of token sets for each row, by depth; null = not requested.
    double* uniforms = nullptr;
    std::int32_t* set_first = nullptr;
    std::int32_t* set_size = nullptr;
};

/// Re-ranks a draft tree (EAGLE-2). The `nodes` - 1 candidates with the highest scores, ties to the earlier
/// candidate, form a tree with the root. The pool holds the candidates of all levels in order. Missing
/// sampled candidates become the last nodes, each its own parent, at depth 1.
struct RerankOp {
    bool sampled = false;
    int candidates = 0;     ///< must satisfy can_rerank()
    int nodes = 0;          ///< including the root; at most candidates + 1
    bool by_score = false;  ///< orders nodes by descending score, not as the candidates
    const std::int32_t* pool_tokens = nullptr;
    const float* pool_logprobs = nullptr;
    const float* pool_scores = nullptr;
    const std::int32_t* pool_parents = nullptr;
    const std::int32_t* pool_rows = nullptr;  ///< for sampled candidates
    std::int32_t root_row = 0;                ///< the root's entry of pool_rows
    std::int32_t root = 0;                    ///< token
    int first_row = 0, first_slot = 0, first_position = 0;
    TreeRows rows;
    // By depth, [width of rows]; needed if the arrays in `rows` are set.
    const double* uniforms = nullptr;
    const std::int32_t* set_first = nullptr;
    const std::int32_t* set_size = nullptr;
};
inline constexpr int max_candidates = 4096;
/// Whether RerankOp supports these sizes.
constexpr bool can_rerank(int candidates, int nodes) {
    return candidates >= 1 && candidates <= max_candidates && nodes >= 1 && nodes <= candidates + 1;
}

/// Verifies by exact match. From the root, the path follows the child whose token is its parent's choice.
struct FollowArgmaxOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;
    const std::int32_t* choices = nullptr;  ///< for row r at r * choice_stride
    std::int64_t choice_stride = 1;
    std::int32_t* path = nullptr;   ///< [width of rows] nodes, root first, ascending
    std::int32_t* count = nullptr;  ///< [1]
};

/// Verifies by typical acceptance (Medusa, arXiv 2401.10774). A draft p = exp(logit * inv_temperature -
/// log_norm), at most 1, is accepted after an accepted parent if p > min(epsilon, delta * exp(-entropy)). The
/// path leads to the deepest accepted node, ties to the most probable, then to the first.
struct AcceptTypicalOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;  ///< at most max_candidates + 1
    float inv_temperature = 1;
    double epsilon = 0, delta = 0;
    const float* draft_logits = nullptr;  ///< [rows] logit of each row's token in its parent's row
    const float* log_norm = nullptr;      ///< [rows]
    const float* min_logit = nullptr;     ///< [rows]; null = no mask
    const float* entropies = nullptr;     ///< [rows]
    std::int32_t* path = nullptr;         ///< [width of rows] nodes, root first, ascending
    std::int32_t* count = nullptr;        ///< [1]
};

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

/// A node of a draft tree whose children are verified by rejection sampling.
struct RejectionNode {
    std::int32_t row = 0;                      ///< row of the logits
    std::int32_t first_draft = 0, drafts = 0;  ///< in the order sampled
    std::int64_t first_prob = 0;               ///< of the node's q, or of scratch for one value if support is
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

/// Lists the children of every node of a sampled tree for RejectionSampleOp. Its nodes are the rows of the
/// step.
struct ListChildrenOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;
    int max_count = 0;                 ///< children per node
    const double* uniforms = nullptr;  ///< [width of rows, max_count] uniforms of a node's drafts, by its
                                       ///< depth
    // Rows that drafts were sampled from: q of row r starts at r * stride.
    std::int64_t stride = 0;
    int support = 0;
    std::int64_t first_id = 0;            ///< as in RejectionNode, for row 0
    std::int64_t id_stride = 0;           ///< between the ids of rows; 0 = shared by all rows
    const std::int32_t* sizes = nullptr;  ///< for each row, replacing `support`; null = `support`
    // Outputs, indexed by the rows of the step.
    RejectionNode* out = nullptr;
    std::int32_t* drafts = nullptr;    ///< [rows, max_count]
    double* draft_uniforms = nullptr;  ///< [rows, max_count]
    std::int32_t* children = nullptr;  ///< [rows, max_count] nodes of their tree
};

/// Follows the children that rejection sampling accepted, from the root.
struct FollowAcceptedOp {
    int first_row = 0, max_count = 0, width = 0;
    const std::int32_t* accepted = nullptr;  ///< for each row of the step, from RejectionSampleOp
    const std::int32_t* children = nullptr;  ///< [rows, max_count], from ListChildrenOp
    std::int32_t* path = nullptr;            ///< [width] nodes, root first, ascending
    std::int32_t* count = nullptr;           ///< [1]
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
/// sum of exp(logit * inv_temperature - log_norm) of row rows[i] over it. Logits below the row's `min_logit`
/// count as 0.
struct SetProbabilityOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int count = 0;
    float inv_temperature = 1;
    const float* log_norm = nullptr;     ///< for each row of the logits
    const std::int32_t* rows = nullptr;  ///< [count]; null = 0, 1, ..
    const std::int32_t* first = nullptr;
    const std::int32_t* size = nullptr;
    const std::int32_t* ids = nullptr;
    float* out = nullptr;              ///< [count]
    const float* min_logit = nullptr;  ///< for each row of the logits; null = no mask
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

/// Selects the k largest of each row, in column order. Ties go to the lower column; NaN is the smallest.
struct TopKSetOp {
    const float* x = nullptr;
    std::int64_t stride = 0;
    int rows = 0, columns = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k], k <= columns
};

/// A router's product fused with the selection of its k largest columns per row. The columns equal those of
/// MatmulOp and TopKSetOp. Scores go to the scratch memory, for rows whose candidates are too close for the
/// fast selection.
struct MatmulTopKSetOp {
    DeviceMatrix weights;
    const half_t* x = nullptr;    ///< [rows, weights.stride]
    int rows = 0, k = 0;          ///< must satisfy can_route()
    std::int32_t* ids = nullptr;  ///< [rows, k]
    void* scratch = nullptr;      ///< router_scratch_bytes() bytes
};
inline constexpr int max_router_columns = 1 << 18;
inline constexpr int max_router_candidates = 1 << 14;
/// Number of blocks. Block b scores every such column c with c % stripes == b, at most matmul_topk_chunk.
constexpr int router_stripes(int n) {
    return (n + matmul_topk_chunk - 1) / matmul_topk_chunk;
}
/// Candidates that a block keeps per row: well above its share of the k largest.
constexpr int router_kept(int n, int k) {
    const int stripes = router_stripes(n), wanted = 2 * ((k + stripes - 1) / stripes) + 12;
    const int room = max_router_candidates / stripes;
    return wanted < matmul_topk_chunk ? (wanted < room ? wanted : room)
                                      : (matmul_topk_chunk < room ? matmul_topk_chunk : room);
}
/// Whether MatmulTopKSetOp supports these sizes.
constexpr bool can_route(int n, int k) {
    return n <= max_router_columns && k >= 1 && k <= n &&
           2 * router_stripes(n) * router_kept(n, k) >= 3 * k &&
           router_stripes(n) * router_kept(n, k) <= max_router_candidates;
}
constexpr std::size_t router_scores_bytes(int rows, int n) {
    return (static_cast<std::size_t>(rows) * static_cast<std::size_t>(n) * sizeof(float) + 255) / 256 * 256;
}
/// Bytes of scratch memory for MatmulTopKSetOp.
constexpr std::size_t router_scratch_bytes(int rows, int n, int k) {
    return router_scores_bytes(rows, n) +
           static_cast<std::size_t>(rows) * static_cast<std::size_t>(router_stripes(n) * router_kept(n, k)) *
               8;
}

/// Selects the m largest columns of each bucket, an approximate top-k for routers. Bucket b holds the columns
/// c with c % buckets == b. The order is descending, ties to the lower column; a bucket with fewer columns is
/// filled with -1. The result includes every column of rank <= m.
struct BucketTopMOp {
    const float* scores = nullptr;
    std::int64_t stride = 0;
    int rows = 0, columns = 0, buckets = 0, m = 0;
    std::int32_t* ids = nullptr;  ///< [rows, buckets * m], one bucket after another
};

/// Lists the distinct tokens of ids [rows, count] in ascending order, and the position of each in the list.
struct UniqueTokensOp {
    const std::int32_t* ids = nullptr;
    std::int64_t count = 0;  ///< over all rows; negative ids are skipped
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [ceil(vocab / 32)], zero before and after the op
    std::int32_t* tokens = nullptr;   ///< [min(count, vocab)]
    std::int32_t* columns = nullptr;  ///< [vocab] positions in `tokens`; other entries stay
    std::int32_t* size = nullptr;     ///< [1]
};

/// Toggles numbers of a bit set over [0, range), then lists its members in ascending order.
struct UpdateIndexSetOp {
    const std::int32_t* toggled = nullptr;  ///< [count], each once
    int count = 0;
    int range = 0;
    std::uint32_t* bits = nullptr;  ///< [ceil(range / 32)]
    std::int32_t* list = nullptr;   ///< members; sized for the whole set
};

/// Merges the clusters of all rows into one list of outputs for a matmul. The matrix stores clusters
/// contiguously, each padded to blocks of cluster_block rows. The list is ascending; run_ends and run_shifts
/// say where each row's candidates are in it (see TopKOp). Every row includes the last cluster.
struct ClustersOp {
    const std::int32_t* chosen = nullptr;  ///< [rows, count], ascending, without the last
    int rows = 0, count = 0;
    int clusters = 0;                          ///< including the last; at most max_clusters
    const std::int32_t* first = nullptr;       ///< [clusters] first matrix row of each cluster
    const std::int32_t* sizes = nullptr;       ///< [clusters] number of tokens
    std::int32_t* columns = nullptr;           ///< matrix rows, padding included; sized for all clusters
    std::int32_t* column_count = nullptr;      ///< [1]
    std::int32_t* run_ends = nullptr;          ///< [rows, count + 1]
    std::int32_t* run_shifts = nullptr;        ///< [rows, count + 1]
    const std::int32_t* row_tokens = nullptr;  ///< token of each matrix row; needed for token_columns
    std::int32_t* token_columns = nullptr;     ///< [vocab] columns of listed tokens; null = not requested
};
inline constexpr int cluster_block = 16;
/// Matrix rows of a cluster of `size` tokens, including padding.
constexpr int padded_cluster_rows(int size) {
    return (size + cluster_block - 1) / cluster_block * cluster_block;
}
inline constexpr int max_clusters = 4096;

/// Lists, for each set, the tokens of the selected clusters and of the last one, in ascending order.
struct ClusterTokensOp {
    const std::int32_t* chosen = nullptr;  ///< [sets, count]; repeats are allowed
    int count = 0;
    int clusters = 0;                          ///< including the last; at most max_clusters
    const std::int32_t* cluster_of = nullptr;  ///< [vocab]; -1 = none
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [sets, ceil(vocab / 32)], scratch
    std::int32_t* tokens = nullptr;   ///< [sets, stride], sized for all tokens
    std::int32_t* size = nullptr;     ///< [sets]
    int sets = 1;
    std::int64_t stride = 0;
};

/// Maps ids through a table: out[i] = table[ids[i]].
struct RemapIdsOp {
    const std::int32_t* ids = nullptr;
    int count = 0;                          ///< upper bound of the number of ids
    const std::int32_t* d_count = nullptr;  ///< number of ids, in device memory; null = count
    const std::int32_t* table = nullptr;
    std::int32_t* out = nullptr;  ///< may be ids
};

/// Gathers matrix rows: to[i] = from[rows[i]].
struct GatherOp {
    DeviceMatrix from;
    const std::int32_t* rows = nullptr;  ///< [count] rows of `from`
    int count = 0;
    half_t* to = nullptr;  ///< [count, from.stride]
};

/// Copies f32 rows: to[r] = from[rows[r]], or from[r] if `rows` is null.
struct CopyRowsOp {
    const float* from = nullptr;
    std::int64_t from_stride = 0;
    const std::int32_t* rows = nullptr;
    int count = 0, cols = 0;
    float* to = nullptr;
    std::int64_t to_stride = 0;
};

/// Compacts a KV cache. In each of `planes` planes, slot first + i takes the contents of slot first +
/// path[i]. The path is ascending, and path[i] >= i.
struct CompactOp {
    KvPlanes cache;
    int planes = 0, width = 0, first = 0;
    const std::int32_t* path = nullptr;  ///< in host memory
    int count = 0;
    /// Replaces `path` with an array in device memory. *d_count <= count entries are valid; null = all.
    const std::int32_t* d_path = nullptr;
    const std::int32_t* d_count = nullptr;
};

}  // namespace draftscope::kernels
