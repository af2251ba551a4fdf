#pragma once

#include <cstdint>
#include <limits>

#include "kernels/ops/sampling.h"

/// Growing, re-ranking and accepting draft trees.
namespace draftscope::kernels {

/// Scores one level of a draft tree (EAGLE-2). Each of a row's k candidates gets the row's score plus its
/// log-probability. The best `keep` of the level, ties to the earlier candidate, become the rows of the next
/// level. Sampled candidates are scored by their order, -1 - order. Missing candidates (id < 0, or no node of
/// a static tree) and everything after them get token -1 and score NaN, which sorts last. If a missing
/// candidate still becomes a row, that row duplicates the first valid row.
struct BeamOp {
    static constexpr float no_limit = std::numeric_limits<float>::infinity();
    bool sampled = false;            ///< candidates are sampled; logits are log-probabilities then
    int level = 0, rows = 0, k = 0;  ///< rows * k <= max_beam; level 0 has one row with score 0
    /// A static tree: the candidates that are nodes, 1 or 0 [rows, k], and the rows of the next level [keep].
    /// Nodes have score 0. Null = select by score.
    const std::int32_t* static_mask = nullptr;
    const std::int32_t* static_next = nullptr;
    const std::int32_t* ids = nullptr;  ///< [rows, k], as MatmulTopKOp leaves them
    const float* logits = nullptr;      ///< [rows, k]
    const float* logsumexp = nullptr;   ///< [rows]
    /// Candidates below min_logprob or min_score are missing. Those below min_next_logprob become no rows.
    float min_logprob = -no_limit, min_score = -no_limit, min_next_logprob = -no_limit;
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
    // The CPU leaves missing candidates out of the pool, and rows out of a level that has too few candidates.
    // Other devices ignore these fields, and the limits of sizes are theirs alone. See
    // Backend::known_count().
    /// The next level follows that of the previous op of the batch, without gaps where nodes are missing.
    bool packed = false;
    std::int32_t* counts = nullptr;  ///< [2] receives the candidates in the pool and the next level's rows
    /// A static tree: the index of each row in its complete level [rows]; updated like scores.
    std::int32_t* static_rows = nullptr;
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
    std::int32_t* sampled_rows = nullptr;  ///< if sampled: row of a node's children; -1 = certain
    double* uniforms = nullptr;            ///< for sampling after each row, by depth; null = not requested
};

/// Re-ranks a draft tree (EAGLE-2). The `nodes` - 1 candidates with the highest scores, ties to the earlier
/// candidate, form a tree with the root. The pool holds the candidates of all levels in order. Missing
/// candidates become the last nodes, each its own parent, with token 0 at depth 1.
struct RerankOp {
    bool sampled = false;
    int candidates = 0;     ///< must satisfy can_rerank(), except on the CPU
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
    const double* uniforms = nullptr;  ///< by depth, [width of rows]; needed if those of `rows` are set
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
    const std::int32_t* choices = nullptr;  ///< for row r at r * choice_stride; null = the first child
    std::int64_t choice_stride = 1;
    int max_count = 0;              ///< of the path, at most the width of `rows`
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

}  // namespace draftscope::kernels
