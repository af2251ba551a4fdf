#pragma once

#include <cstdint>
#include <span>

#include "base/numel.h"
#include "engine/draft/draft_samples.h"
#include "engine/draft/growing_tree.h"
#include "engine/draft/tree_levels.h"

namespace draftscope {

/// The candidates of growing trees, with all levels of a tree in sequence, and the nodes of the current
/// level. The caller holds Backend::submit_mutex().
class CandidatePool {
  public:
    /// Candidates that the LM head proposed for the rows of a level, with the results of HeadCall.
    struct Proposed {
        std::int32_t* ids;
        float *logits, *sums;
        const std::int32_t* tokens;
    };
    /// Allocates memory for `topk` candidates per row of all levels and sets the trees' indices for level 0.
    /// `max_rows` and `max_nodes` are those of a level over all trees; `shared`: one row serves all nodes of
    /// a tree's level. Returns false if out of memory.
    bool prepare(DraftContext& context, RoundStep& step, std::span<GrowingTree> trees, int topk, int max_rows,
                 int max_nodes, bool shared);
    int topk() const { return topk_; }
    /// Where the head leaves its results.
    Proposed& proposed() { return proposed_; }
    /// Adds a level's candidates to the trees' pools and chooses the next level's nodes. Where candidates are
    /// missing, trees get fewer nodes as far as the backend knows. Returns a tree that got none; null = all
    /// did.
    const GrowingTree* grow(int level, std::span<GrowingTree* const> trees, const DraftSamples& samples);
    // Nodes of the level that the latest grow() chose; a tree's start at its first_node:
    const std::int32_t* tokens() const { return tokens_; }
    const std::int32_t* parents() const { return parents_; }  ///< nodes of the level above
    /// [nodes, level] slots of the ancestors of a level's nodes and their own.
    std::int32_t* ancestor_slots(int level) const { return slots_[(level - 1) % 2]; }
    /// Returns the op that re-ranks a tree's candidates, without the destination.
    kernels::RerankOp rerank_op(const GrowingTree& tree, bool sampled) const;
    /// Requests the candidates of all trees; returns the index for read().
    std::size_t request(RoundResults& results) const { return results.request(pool_, 3 * size_); }
    /// Returns a tree's candidates, which are valid as long as the results are.
    DraftCandidates::Pool read(const RoundResults& results, std::size_t index, const GrowingTree& tree) const;
    /// Requests the candidates of a tree that became the nodes of the current level, GrowingTree::nodes.
    std::size_t request_level(RoundResults& results, const GrowingTree& tree) const {
        return results.request(indices_ + numel(tree.index, index_stride_), tree.nodes);
    }

  private:
    kernels::BeamOp beam_op(const GrowingTree& tree, int level, int keep, int next_first,
                            const DraftSamples& samples) const;

    RoundStep* step_ = nullptr;
    int topk_ = 0;
    bool shared_ = false;
    std::size_t size_ = 0;  ///< candidates of all trees
    int index_stride_ = 0;  ///< of scores_, indices_ and static_rows_: at least the nodes of a tree's level
    Proposed proposed_{};
    std::int32_t* pool_ = nullptr;  ///< [5, size_] tokens, log-probabilities, parents, scores, sampled rows
    float* scores_ = nullptr;       ///< [trees, index_stride_] of the level's nodes
    std::int32_t *indices_ = nullptr, *static_rows_ = nullptr;  ///< [trees, index_stride_] as in BeamOp
    std::int32_t* counts_ = nullptr;                            ///< [trees, 2] BeamOp::counts
    std::int32_t *tokens_ = nullptr, *parents_ = nullptr, *slots_[2] = {};
    StaticLevels static_levels_;
};

}  // namespace draftscope
