#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/halves.h"

/// What a device is asked for: operands by their addresses in its memory. Plain data, so that device code may
/// include it. Every op obeys the contract of this folder: a row's result depends on that row's inputs alone.
namespace draftscope::kernels {

using Bf16 = std::uint16_t;  ///< the upper half of a float; fp16 on a device whose halves() are that

/// Weights [n, k] in row order; `stride` values lie between rows. Columns k .. stride - 1 are zeros.
struct DeviceMatrix {
    const Bf16* data = nullptr;
    int n = 0;
    int k = 0;
    int stride = 0;
};
/// The stride of a row of `k` bf16 values: whole pieces of 64, so that no kernel has a tail in k.
constexpr int padded_columns(int k) {
    return (k + 63) / 64 * 64;
}

/// y[m] = x[m] W^T (+ bias), m < rows; with `accumulate` added to y.
struct MatmulOp {
    DeviceMatrix weights;
    const Bf16* x = nullptr;  ///< [rows, weights.stride]
    int rows = 0;
    float* y = nullptr;  ///< [rows, y_stride >= outputs]
    std::int64_t y_stride = 0;
    const float* bias = nullptr;  ///< [n] or null
    bool accumulate = false;
    /// Chosen outputs: column c of y is output chosen[c], c < *chosen_count. Null = all.
    const std::int32_t* chosen = nullptr;
    const std::int32_t* chosen_count = nullptr;
    int most_chosen = 0;  ///< upper bound of *chosen_count, known before the op runs
};

/// Groups of `width` neighbouring values, each divided by the root of its mean square and multiplied by
/// `weight` [width]. Groups of a row lie side by side from x on.
struct RmsNormOp {
    const float* x = nullptr;  ///< [rows, x_stride]
    std::int64_t x_stride = 0;
    int rows = 0, groups = 1, width = 0;
    const float* weight = nullptr;
    float eps = 0;
    float* y = nullptr;  ///< [rows, y_stride] or null; may be x
    std::int64_t y_stride = 0;
    bool add = false;      ///< y += instead of y =
    Bf16* half = nullptr;  ///< [rows, half_stride] or null: the same, rounded; groups * width values a row
    int half_stride = 0;   ///< padding columns up to half_columns are set to zero
    int half_columns = 0;
};

/// What a value goes through on its way.
enum class Activation { none, silu, relu };

/// Rounds rows to bf16, behind an activation; columns cols .. y_columns - 1 become zero.
struct RoundOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    Bf16* y = nullptr;
    std::int64_t y_stride = 0;
    int y_columns = 0;
    Activation activation = Activation::none;
};

/// y = base + activation(x): what a residual block adds to its input.
struct AddOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, cols = 0;
    Activation activation = Activation::none;
    const Bf16* base = nullptr;  ///< [rows, base_stride]; null = y as it is
    std::int64_t base_stride = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

/// y = silu(gate) * up from rows [gate | up] of 2 * width values, rounded to bf16, padded with zeros.
struct SiluMulOp {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int rows = 0, width = 0;
    Bf16* y = nullptr;
    int y_stride = 0;
};

/// Keys and values of a sequence: per layer a plane of keys [slots, kv_width] and one of values behind it.
struct KvPlanes {
    Bf16* data = nullptr;
    std::int64_t plane = 0;  ///< values in one plane
    constexpr const Bf16* keys(int layer) const { return data + 2 * layer * plane; }
    constexpr const Bf16* values(int layer) const { return data + (2 * layer + 1) * plane; }
};

/// Where the rows of a pass sit and what they see, as AttentionQuery says it; arrays in device memory.
struct RowPlaces {
    const KvPlanes* caches = nullptr;        ///< [sequences]
    const std::int32_t* sequence = nullptr;  ///< [rows]
    const std::int32_t* slot = nullptr;      ///< [rows] where the row's key goes
    const std::int32_t* position = nullptr;  ///< [rows]
    const std::int32_t* prefix = nullptr;    ///< [rows]
    const std::int32_t* tail_first = nullptr;
    const std::int32_t* tail_size = nullptr;
    const std::int32_t* tails = nullptr;
    /// Runs of rows of one sequence that share the read of its keys: first row, rows; [tiles, 2].
    const std::int32_t* tiles = nullptr;
};
struct HeadShape {
    int heads = 0, kv_heads = 0, head_dim = 0;
};
/// Rows of one attention tile: about 16 (row, head) pairs share each key.
constexpr int attention_tile_rows(const HeadShape& shape) {
    const int group = shape.heads / shape.kv_heads;
    return group >= 16 ? 1 : 16 / group;
}
/// Logical positions that one partial sum of attention covers.
inline constexpr int attention_block = 64;

/// Rotates q and k of rows [q | k | v] (half-split pairs), leaves q in place and stores k and v, rounded, in
/// the row's slot.
struct RopeStoreOp {
    float* qkv = nullptr;
    std::int64_t stride = 0;
    int rows = 0;
    HeadShape shape;
    const float* cos = nullptr;  ///< [positions, head_dim / 2]
    const float* sin = nullptr;
    RowPlaces places;
    int layer = 0;
};

struct AttentionOp {
    const float* q = nullptr;  ///< [rows, q_stride], rotated
    std::int64_t q_stride = 0;
    int first_row = 0, rows = 0;  ///< rows first_row .. first_row + rows - 1, those of the tiles
    int tiles = 0;
    HeadShape shape;
    float scale = 1;
    RowPlaces places;
    int layer = 0;
    int blocks = 0;  ///< at least ceil(positions / attention_block) of every row
    /// [rows, heads, blocks, head_dim + 2]: partial sums, from first_row on.
    float* partial = nullptr;
    Bf16* y = nullptr;  ///< [rows, y_stride], padded with zeros
    int y_stride = 0;
};

/// The k largest of the first `support` logits of each row, descending, ties to the lower column, and the log
/// of the sum of all exponentials. NaN counts as the lowest.
struct SelectOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, support = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k]
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows]
    void* scratch = nullptr;      ///< select_scratch() bytes
    /// Row m's candidates are tokens own[m * own_stride + i], i < support, rising, and its logit of token t
    /// lies in column columns[t], or without `columns` in column i; ids are tokens. Negative tokens do not
    /// count. Null = columns as they lie.
    const std::int32_t* own = nullptr;
    std::int64_t own_stride = 0;
    const std::int32_t* columns = nullptr;
    /// Or row m's candidates lie in `runs` runs of columns, the same number for every row: run i ends before
    /// place run_ends[m * runs + i] of the row's candidates, and its place p is column p + run_shifts[m *
    /// runs
    /// + i]; behind the last end there are none. Column c is token row_tokens[column_rows[c]]: ids are
    /// tokens, and ties go to the lower one. Sums go by places, not by columns.
    const std::int32_t* run_ends = nullptr;
    const std::int32_t* run_shifts = nullptr;
    int runs = 0;
    const std::int32_t* column_rows = nullptr;
    const std::int32_t* row_tokens = nullptr;
};
inline constexpr int select_chunk = 4096;  ///< columns one block takes; sums follow these borders
inline constexpr int most_selected = 64;
/// The chunks' candidates go through one block.
constexpr bool can_select(int support, int k) {
    return k >= 1 && k <= most_selected && (support + select_chunk - 1) / select_chunk * k <= select_chunk;
}
constexpr std::size_t select_scratch(int rows, int support, int k) {
    const auto chunks = static_cast<std::size_t>((support + select_chunk - 1) / select_chunk);
    return static_cast<std::size_t>(rows) *
           (chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8) + sizeof(std::uint32_t));
}

/// A product whose logits nobody else wants, with its selection: the k best of the first `support` outputs of
/// each row as SelectOp orders them, and the log of the sum of all exponentials. The logits are MatmulOp's,
/// bit for bit; they are not written.
struct HeadOp {
    DeviceMatrix weights;
    const Bf16* x = nullptr;  ///< [rows, weights.stride]
    int rows = 0, support = 0, k = 0;
    const float* bias = nullptr;  ///< [n] or null
    std::int32_t* ids = nullptr;  ///< [rows, k], k <= support
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows]
    void* scratch = nullptr;      ///< head_scratch() bytes
};
inline constexpr int head_chunk = 256;  ///< outputs of one block; sums follow these borders
constexpr std::size_t head_scratch(int rows, int support, int k) {
    const auto chunks = static_cast<std::size_t>((support + head_chunk - 1) / head_chunk);
    return static_cast<std::size_t>(rows) * chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8);
}

/// Drafts that are drawn: q = softmax(logits / temperature) of the columns that top-k and then top-p leave
/// (CutOp), and `k` columns of it without replacement, in the order drawn.
struct DraftOp {
    float* logits = nullptr;  ///< [rows, stride]; the first `support` of each row become q
    std::int64_t stride = 0;
    int rows = 0, support = 0, k = 0;  ///< at most most_draw_columns and most_selected
    double temperature = 1;
    int top_k = 0;
    double top_p = 1;
    const double* uniforms = nullptr;  ///< [rows, k], in [0, 1)
    std::int32_t* ids = nullptr;       ///< [rows, k] columns; -1 where no more have any weight
    float* logprobs = nullptr;         ///< [rows, k], log q of them, earlier draws not taken out
    float* lowest = nullptr;           ///< [rows], scratch
    std::int32_t* last = nullptr;      ///< [rows], scratch
    /// Where rows have columns of their own: how many of the `support` [rows], and their tokens [rows,
    /// stride], which `ids` are then. Null = all columns.
    const std::int32_t* sizes = nullptr;
    const std::int32_t* tokens = nullptr;
};

/// A row's own candidates as columns of their own: out[m, i] is the logit of tokens[m, i], i < sizes[m],
/// which lies in column columns[token].
struct OwnColumnsOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, most = 0;
    const std::int32_t* tokens = nullptr;  ///< [rows, token_stride]
    std::int64_t token_stride = 0;
    const std::int32_t* sizes = nullptr;    ///< [rows], at most `most`; null = `most`
    const std::int32_t* columns = nullptr;  ///< of each token
    float* out = nullptr;                   ///< [rows, out_stride]
    std::int64_t out_stride = 0;
};

/// A level of a tree grown by score (EAGLE-2): each row's k candidates get their row's score and their own
/// log-probability; the best `keep` of the level, ties to the earlier candidate, are the rows of the next
/// one. Drawn candidates count by their order instead, -1 - order; one without an id is none, nor is what
/// follows it: token 0 with a score of -inf, behind all others. Where it becomes a row, that row is another
/// copy of the first one that is something.
struct BeamOp {
    bool drawn = false;              ///< logits are log-probabilities then
    int level = 0, rows = 0, k = 0;  ///< rows * k <= most_beam; one row at level 0, whose score is 0
    /// A tree fixed in advance: which candidates are its nodes, 1 or 0 [rows, k], and which of them the rows
    /// of the next level [keep]. Scores are 0 for nodes and -inf for all else. Null = by score.
    const std::int32_t* chosen = nullptr;
    const std::int32_t* chosen_next = nullptr;
    const std::int32_t* ids = nullptr;     ///< [rows, k], as HeadOp leaves them
    const float* logits = nullptr;         ///< [rows, k]
    const float* logsumexp = nullptr;      ///< [rows]
    bool one_for_all = false;              ///< those three are of one row, and every row's
    const std::int32_t* tokens = nullptr;  ///< of each id; null = ids are tokens
    std::int32_t* pool_tokens = nullptr;   ///< [rows, k]
    float* pool_logprobs = nullptr;        ///< [rows, k], at most 0; NaN becomes -inf
    int keep = 0;                          ///< <= most_selected; 0 = the last level
    int first_row = 0;                     ///< of this sequence in the pass that made the candidates
    int first_slot = 0;                    ///< where the next level's keys go, one slot a row
    float* scores = nullptr;               ///< [most_selected]: of the rows, then of the next level's
    std::int32_t* next_tokens = nullptr;   ///< [keep]
    std::int32_t* next_rows = nullptr;     ///< [keep], which row proposed it, first_row included
    /// Slots of the rows' tree ancestors and themselves, [rows, level], and the next level's [keep, level +
    /// 1].
    const std::int32_t* tails = nullptr;
    std::int32_t* next_tails = nullptr;
    // For RerankOp; null = not wanted.
    float* pool_scores = nullptr;          ///< [rows, k]
    std::int32_t* pool_parents = nullptr;  ///< [rows, k], places in the pool; -1 = the root
    std::int32_t* row_places = nullptr;    ///< [most_selected]: the rows' own, then the next level's
    int first_place = 0;                   ///< of the level's candidates in the pool
    /// Of drawn ones, [rows, k]: the row that a candidate becomes, counted from next_first_row; -1 = none.
    std::int32_t* pool_rows = nullptr;
    int next_first_row = 0;
};
inline constexpr int most_beam = 4096;

/// Trees as the rows of a target's pass, arrays over all rows of the step. Node i of a tree is row first + i.
struct TreeRows {
    std::int32_t* tokens = nullptr;
    std::int32_t* parents = nullptr;    ///< rows; a root's is its own
    std::int32_t* positions = nullptr;  ///< as RowPlaces has it
    std::int32_t* tail_sizes = nullptr;
    std::int32_t* tails = nullptr;  ///< [rows, width]: slots of a row's ancestors and its own
    int width = 0;                  ///< at least the deepest tree's levels of nodes
    float* logprobs = nullptr;
    std::int32_t* drawn_rows = nullptr;  ///< of drawn drafts: which row a node's children were drawn from
    // What a row is asked, by its depth; null = not wanted.
    double* uniforms = nullptr;
    std::int32_t* set_first = nullptr;
    std::int32_t* set_size = nullptr;
};

/// EAGLE-2's re-ranking: of a pool of candidates, level after level, the `nodes` - 1 of the highest score,
/// ties to the earlier candidate, become a tree with the root. Drawn ones that are none are the last nodes
/// then, each its own parent, at depth 1.
struct RerankOp {
    bool drawn = false;
    int candidates = 0;     ///< can_rerank()
    int nodes = 0;          ///< the root's included; at most candidates + 1
    bool by_score = false;  ///< nodes in falling score instead of the candidates' order
    const std::int32_t* pool_tokens = nullptr;
    const float* pool_logprobs = nullptr;
    const float* pool_scores = nullptr;
    const std::int32_t* pool_parents = nullptr;
    const std::int32_t* pool_rows = nullptr;  ///< of drawn ones
    std::int32_t root_row = 0;                ///< what pool_rows says of a candidate, of the root
    std::int32_t root = 0;                    ///< token
    int first_row = 0, first_slot = 0, first_position = 0;
    TreeRows rows;
    // By depth, [width of rows]; where the rows want them.
    const double* uniforms = nullptr;
    const std::int32_t* set_first = nullptr;
    const std::int32_t* set_size = nullptr;
};
inline constexpr int most_pool = 4096;
constexpr bool can_rerank(int candidates, int nodes) {
    return candidates >= 1 && candidates <= most_pool && nodes >= 1 && nodes <= candidates + 1;
}

/// Exact match: from the root to the child whose token is its parent's choice, as far as there is one.
struct AcceptOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;
    const std::int32_t* choices = nullptr;  ///< of row r at r * choice_stride
    std::int64_t choice_stride = 1;
    std::int32_t* path = nullptr;   ///< [width of rows]: nodes, root first, rising
    std::int32_t* count = nullptr;  ///< [1]
};

/// Typical acceptance (Medusa, arXiv 2401.10774): a draft is accepted after an accepted parent where its
/// probability there, exp(logit * scale - log_norm), at most 1, is above min(epsilon, delta exp(-entropy));
/// the path leads to the deepest of them, of several to the likeliest, then to the first.
struct AcceptTypicalOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;  ///< at most most_pool + 1
    float scale = 1;
    double epsilon = 0, delta = 0;
    const float* draft_logits = nullptr;  ///< [rows] of each row's token in its parent's row
    const float* log_norm = nullptr;      ///< [rows]
    const float* lowest = nullptr;     ///< [rows]; smaller logits have no probability. Null = nothing was cut
    const float* entropies = nullptr;  ///< [rows]
    std::int32_t* path = nullptr;      ///< [width of rows]: nodes, root first, rising
    std::int32_t* count = nullptr;     ///< [1]
};

/// Which tokens of each row top-k and then top-p leave (the smallest set of the remaining that reaches it,
/// best first, ties to the lower id): those with a logit above lowest[row], and of those equal to it the ids
/// up to last[row]. Weights exp((logit - largest) * scale) count in cut_weight() units, so that no order of
/// adding them matters. A row that nothing is cut from has -inf and vocab - 1; so has one without any weight.
struct CutOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float scale = 1;
    int top_k = 0;                        ///< 0 = off
    double top_p = 1;                     ///< 1 = off
    float* lowest = nullptr;              ///< [rows]
    std::int32_t* last = nullptr;         ///< [rows]
    const std::int32_t* sizes = nullptr;  ///< [rows] columns of a row, in place of `vocab`; null = all
};
inline constexpr int cut_weight_bits = 42;  ///< of 2^18 columns the sum fits 60 bits
/// Whole units of a weight, at most 1; none for NaN.
constexpr std::uint64_t cut_weight(float weight) {
    constexpr std::uint64_t most = (std::uint64_t{1} << cut_weight_bits) - 1;
    if (!(weight > 0)) return 0;
    return weight >= 1 ? most : static_cast<std::uint64_t>(weight * static_cast<float>(most + 1));
}
/// What is left of a row by its CutOp.
struct KeptTokens {
    const float* lowest = nullptr;  ///< of each row; null = nothing was cut
    const std::int32_t* last = nullptr;
};

/// What a verifier draws of each row: the token of an inverse CDF in the order of ids, weights exp(logit *
/// scale). NaN has no weight; a row without any gives token 0. One row's sums go tile by tile in a fixed
/// order, whatever shares the call.
struct DrawOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float scale = 1;                   ///< 1 / temperature
    const double* uniforms = nullptr;  ///< [rows], in [0, 1)
    std::int32_t* tokens = nullptr;    ///< [rows]
    float* values = nullptr;           ///< [rows], the tokens' logits
    float* log_norm = nullptr;         ///< [rows], log of the sum of all weights; 0 without any
    KeptTokens kept;                   ///< others have no weight
};
inline constexpr int draw_tile = 32;               ///< columns of one sum
inline constexpr int most_draw_columns = 1 << 18;  ///< whose sums one block holds

/// A node of a draft tree whose children rejection sampling tries.
struct ResidualNode {
    std::int32_t row = 0;                      ///< of the logits
    std::int32_t first_draft = 0, drafts = 0;  ///< in the order drawn
    std::int64_t first_prob = 0;               ///< of the node's q: support entries, or room for one where
    std::int32_t support = 0;                  ///< there are none: then its drafts were certain
    std::int64_t first_id = 0;                 ///< of q's tokens, each once; -1 = entry i is token i
    double uniform = 0;                        ///< of the token that is drawn where no draft is kept
};
/// Speculative sampling after each node (Leviathan et al. 2023; trees drawn without replacement: EAGLE-1):
/// draft i is kept with probability min(1, p / q); a rejection leaves p := norm(max(0, p - q)) and takes the
/// draft out of q. p = exp(logit * scale - log_norm), at most 1, of logits from the row's `lowest` on.
struct ResidualOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int vocab = 0, count = 0;
    float scale = 1;
    const float* log_norm = nullptr;      ///< of each row of the logits
    const float* lowest = nullptr;        ///< of each row of the logits; null = nothing was cut
    const ResidualNode* nodes = nullptr;  ///< [count]
    const std::int32_t* drafts = nullptr;
    const double* uniforms = nullptr;  ///< of each draft
    const std::int32_t* ids = nullptr;
    float* probs = nullptr;            ///< q adds up to 1; left with what was not taken out
    float* saved = nullptr;            ///< room for as many as there are probs
    float* weights = nullptr;          ///< room for [count, vocab]
    std::int32_t* accepted = nullptr;  ///< [count] which of the node's drafts is kept, -1 = none
    std::int32_t* bonus = nullptr;     ///< [count] token that follows then, drawn from what is left; else -1
    float* bonus_logits = nullptr;     ///< [count]
};

/// A row's distribution over its own columns, q = softmax(logits / temperature), spread over the vocabulary
/// by a token affinity: out[m, t] = temperature * log of the sum of q * weight over the tokens that give t
/// something, in their order; -inf where none does.
struct SpreadOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, support = 0;
    const std::int32_t* sizes = nullptr;   ///< [rows] columns that count, in place of `support`; null = all
    const std::int32_t* tokens = nullptr;  ///< of the columns, each once; null = their numbers
    std::int64_t token_stride = 0;         ///< between those of rows; 0 = all have the same
    float temperature = 1;
    int vocab = 0;
    // Of token t, givers[first[t]] .. givers[first[t + 1] - 1] and what part of theirs they give.
    const std::int32_t* first = nullptr;
    const std::int32_t* givers = nullptr;
    const float* weights = nullptr;
    double* scratch = nullptr;  ///< [rows, vocab]
    float* out = nullptr;       ///< [rows, out_stride]
    std::int64_t out_stride = 0;
};

/// The tokens that those of a set give something by the same affinity, rising: what a row over that set can
/// propose when it is spread.
struct ReachOp {
    const std::int32_t* tokens = nullptr;  ///< of the set, each once
    const std::int32_t* size = nullptr;    ///< [1]
    int most = 0;                          ///< of `size`
    int vocab = 0;
    const std::int32_t* first = nullptr;  ///< as SpreadOp has them
    const std::int32_t* givers = nullptr;
    std::uint32_t* bits = nullptr;     ///< [2, ceil(vocab / 32)], scratch
    std::int32_t* out = nullptr;       ///< [vocab]
    std::int32_t* out_size = nullptr;  ///< [1]
};

/// The drafts of every node of a tree of drawn ones, for ResidualOp, whose nodes are the rows of the step.
struct DraftListOp {
    TreeRows rows;
    int first_row = 0, nodes = 0;
    int most = 0;                      ///< children of a node
    const double* uniforms = nullptr;  ///< [width of rows, most]: of a node's drafts, by its depth
    // Of the rows that drafts were drawn from: q of row r from r * stride on.
    std::int64_t stride = 0;
    int support = 0;
    std::int64_t first_id = 0;            ///< as ResidualNode has it, of row 0
    std::int64_t id_stride = 0;           ///< between the ids of rows; 0 = all have the same
    const std::int32_t* sizes = nullptr;  ///< of each row, in place of `support`; null = it is every row's
    // Of all rows of the step, indexed by row.
    ResidualNode* out = nullptr;
    std::int32_t* drafts = nullptr;    ///< [rows, most]
    double* draft_uniforms = nullptr;  ///< [rows, most]
    std::int32_t* children = nullptr;  ///< [rows, most], nodes of their tree
};

/// Rejection sampling: from the root to the child that was kept, as far as there is one.
struct AcceptDraftsOp {
    int first_row = 0, most = 0, width = 0;
    const std::int32_t* accepted = nullptr;  ///< of each row of the step, as ResidualOp leaves it
    const std::int32_t* children = nullptr;  ///< [rows, most], as DraftListOp leaves them
    std::int32_t* path = nullptr;            ///< [width]: nodes, root first, rising
    std::int32_t* count = nullptr;           ///< [1]
};

/// Of chosen tokens the logit, and how many tokens come before it in its row: larger, or equal and a lower
/// id. Ranks cost a pass over the row, and may be left out.
struct RankOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int vocab = 0, count = 0;
    const std::int32_t* rows = nullptr;    ///< [count]
    const std::int32_t* tokens = nullptr;  ///< [count]
    float* values = nullptr;               ///< [count]
    std::int32_t* ranks = nullptr;         ///< [count] or null
};

/// Probability over sets of tokens: out[i] is the sum of exp(logit * scale - log_norm) of row rows[i] over
/// ids[first[i]] .. ids[first[i] + size[i] - 1]; logits below the row's `lowest` count nothing.
struct MassOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int count = 0;
    float scale = 1;
    const float* log_norm = nullptr;     ///< of each row of the logits
    const std::int32_t* rows = nullptr;  ///< [count]; null = 0, 1, ..
    const std::int32_t* first = nullptr;
    const std::int32_t* size = nullptr;
    const std::int32_t* ids = nullptr;
    float* out = nullptr;           ///< [count]
    const float* lowest = nullptr;  ///< of each row of the logits; null = nothing was cut
};

/// out[row] = H of the row's distribution p = exp(logit * scale - log_norm), at most 1, as Medusa's code
/// computes it: -sum p log(p + 1e-5). Logits below the row's `lowest` count nothing.
struct EntropyOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, vocab = 0;
    float scale = 1;
    const float* log_norm = nullptr;  ///< [rows]
    const float* lowest = nullptr;    ///< [rows]; null = nothing was cut
    float* out = nullptr;             ///< [rows]
};
inline constexpr float entropy_floor = 1e-5f;  ///< keeps the logarithm of an impossible token finite

/// The k largest of each row in the order of their columns; ties to the lower column, NaN the lowest.
struct TopSetOp {
    const float* x = nullptr;
    std::int64_t stride = 0;
    int rows = 0, columns = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k], k <= columns
};

/// A router's product and of each row its k best columns, in their order: MatmulOp and TopSetOp in one pass,
/// the same columns. Scores go to the scratch, for rows whose best are too close together to be found faster.
struct RouterOp {
    DeviceMatrix weights;
    const Bf16* x = nullptr;      ///< [rows, weights.stride]
    int rows = 0, k = 0;          ///< can_route()
    std::int32_t* ids = nullptr;  ///< [rows, k]
    void* scratch = nullptr;      ///< router_scratch() bytes
};
inline constexpr int most_router_columns = 1 << 18;
inline constexpr int most_router_candidates = 1 << 14;
/// Blocks, each of which scores every that many columns, head_chunk at most.
constexpr int router_stripes(int n) {
    return (n + head_chunk - 1) / head_chunk;
}
/// What a block keeps of a row: well above what would be its share of the k best.
constexpr int router_kept(int n, int k) {
    const int stripes = router_stripes(n), wanted = 2 * ((k + stripes - 1) / stripes) + 12;
    const int room = most_router_candidates / stripes;
    return wanted < head_chunk ? (wanted < room ? wanted : room) : (head_chunk < room ? head_chunk : room);
}
constexpr bool can_route(int n, int k) {
    return n <= most_router_columns && k >= 1 && k <= n &&
           2 * router_stripes(n) * router_kept(n, k) >= 3 * k &&
           router_stripes(n) * router_kept(n, k) <= most_router_candidates;
}
constexpr std::size_t router_scores_bytes(int rows, int n) {
    return (static_cast<std::size_t>(rows) * static_cast<std::size_t>(n) * sizeof(float) + 255) / 256 * 256;
}
constexpr std::size_t router_scratch(int rows, int n, int k) {
    return router_scores_bytes(rows, n) +
           static_cast<std::size_t>(rows) * static_cast<std::size_t>(router_stripes(n) * router_kept(n, k)) *
               8;
}

/// Striped selection (reference: a router need not rank exactly): bucket b holds the columns c with c %
/// buckets == b, and the m largest of each bucket are kept, descending, ties to the lower column; -1 where a
/// bucket has fewer. Every column of rank <= m is among them.
struct StripedOp {
    const float* scores = nullptr;
    std::int64_t stride = 0;
    int rows = 0, columns = 0, buckets = 0, m = 0;
    std::int32_t* ids = nullptr;  ///< [rows, buckets * m], bucket after bucket
};

/// The tokens that occur in ids [rows, count], rising, and where each lies among them.
struct UnionOp {
    const std::int32_t* ids = nullptr;
    std::int64_t count = 0;  ///< over all rows; negative ids do not count
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [ceil(vocab / 32)]; left all zero
    std::int32_t* tokens = nullptr;   ///< [min(count, vocab)]
    std::int32_t* columns = nullptr;  ///< [vocab]; places of those tokens, others as they were
    std::int32_t* size = nullptr;     ///< [1]
};

/// A set of numbers below `range` that is kept as bits: those of `toggled` enter it or leave it, and what is
/// in it then is listed, rising.
struct RowSetOp {
    const std::int32_t* toggled = nullptr;  ///< [count], each once
    int count = 0;
    int range = 0;
    std::uint32_t* bits = nullptr;  ///< [ceil(range / 32)]
    std::int32_t* list = nullptr;   ///< room for all that are in the set then
};

/// A head whose rows lie cluster after cluster, each filled up to whole blocks of cluster_block rows, as
/// chosen outputs of a product: the clusters of all rows together, rising, and where each row's own
/// candidates then lie (SelectOp's runs). Every row has the last cluster.
struct ClustersOp {
    const std::int32_t* chosen = nullptr;  ///< [rows, count] clusters of each row, rising, without the last
    int rows = 0, count = 0;
    int clusters = 0;                          ///< with the last; at most most_clusters
    const std::int32_t* first = nullptr;       ///< [clusters] where a cluster begins in the matrix
    const std::int32_t* sizes = nullptr;       ///< [clusters] its tokens
    std::int32_t* columns = nullptr;           ///< rows of the matrix, fillings included; room for all
    std::int32_t* column_count = nullptr;      ///< [1]
    std::int32_t* run_ends = nullptr;          ///< [rows, count + 1]
    std::int32_t* run_shifts = nullptr;        ///< [rows, count + 1]
    const std::int32_t* row_tokens = nullptr;  ///< of the matrix's rows; needed for
    std::int32_t* token_columns = nullptr;     ///< [vocab] columns of their tokens, others as they were; null
                                               ///< = not wanted
};
inline constexpr int cluster_block = 16;
/// Rows of a cluster of `size` tokens.
constexpr int filled_cluster(int size) {
    return (size + cluster_block - 1) / cluster_block * cluster_block;
}
inline constexpr int most_clusters = 4096;

/// Sets of tokens: of each the tokens of chosen clusters and the last one, rising.
struct ClusterTokensOp {
    const std::int32_t* chosen = nullptr;  ///< [sets, count], as often as it may be
    int count = 0;
    int clusters = 0;                          ///< with the last; at most most_clusters
    const std::int32_t* cluster_of = nullptr;  ///< [vocab]; -1 = none
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [sets, ceil(vocab / 32)], scratch
    std::int32_t* tokens = nullptr;   ///< [sets, stride], room for all
    std::int32_t* size = nullptr;     ///< [sets]
    int sets = 1;
    std::int64_t stride = 0;
};

/// Other names of ids: out[i] = table[ids[i]].
struct TranslateOp {
    const std::int32_t* ids = nullptr;
    int count = 0;                              ///< most of them
    const std::int32_t* count_there = nullptr;  ///< how many there are; null = count
    const std::int32_t* table = nullptr;
    std::int32_t* out = nullptr;  ///< may be ids
};

struct GatherOp {
    DeviceMatrix from;
    const std::int32_t* rows = nullptr;  ///< [count] rows of `from`
    int count = 0;
    Bf16* to = nullptr;  ///< [count, from.stride]
};

/// Copies rows of f32: to[r] = from[rows[r]], or from[r] without `rows`.
struct CopyRowsOp {
    const float* from = nullptr;
    std::int64_t from_stride = 0;
    const std::int32_t* rows = nullptr;
    int count = 0, cols = 0;
    float* to = nullptr;
    std::int64_t to_stride = 0;
};

/// KV compaction: in each of `planes` planes, slot first + i takes what slot first + path[i] held; path rises
/// and path[i] >= i.
struct CompactOp {
    KvPlanes cache;
    int planes = 0, width = 0, first = 0;
    const std::int32_t* path = nullptr;  ///< in host memory
    int count = 0;
    /// Instead of `path`, an array there, of which *count_there <= count places count, or all (null).
    const std::int32_t* path_there = nullptr;
    const std::int32_t* count_there = nullptr;
};

}  // namespace draftscope::kernels
