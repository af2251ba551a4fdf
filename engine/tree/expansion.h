#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// EAGLE-2's expansion phase and re-ranking (reference: EAGLE-2, section on dynamic draft trees). Pure
/// bookkeeping over candidates; the drafter supplies each level's top-k. Ties: equal cumulative score ->
/// smaller flat index first, which keeps the selection closed under ancestors. With `choices` in the spec the
/// tree is the one fixed there (Medusa, EAGLE-1): a beam is the level's nodes that have children, and a node
/// that a short shortlist has no candidate for is left out with its descendants.
class BeamExpansion {
  public:
    BeamExpansion() = default;
    BeamExpansion(TokenId root, const TreeSpec& spec) { reset(root, spec); }
    /// Another tree, in the memory of the one before. With `draws` it is one of draws (EAGLE-1's): candidates
    /// come in the order drawn, and which of them are expanded and kept depends on that order alone, never on
    /// their values, or the kept ones would be no draws from q any more. A path's rank is the sum of its
    /// orders (our default; EAGLE-1 uses one fixed tree).
    void reset(TokenId root, const TreeSpec& spec, bool draws = false);

    struct BeamNode {
        int flat = 0;        ///< candidate index
        int parent_row = 0;  ///< row of the previous level's forward that proposed it
        TokenId token = no_token;
        float score = 0;  ///< cumulative log-prob
    };

    /// Level 0: the root's candidates (count <= topk, descending). Becomes the first beam as a whole (without
    /// `choices`).
    void start(std::span<const TokenId> ids, std::span<const float> logprobs);
    /// Candidates of every beam row, `counts[r]` of them at ids[r * topk]. Selects the next beam.
    void extend(std::span<const TokenId> ids, std::span<const float> logprobs, std::span<const int> counts);
    /// What the candidates of the latest start() or of row `row` of the latest extend() were drawn from. Call
    /// before that start() or extend().
    void set_drawn_from(std::size_t row, std::shared_ptr<const DraftDistribution> q);
    const std::vector<BeamNode>& beam() const { return beam_; }
    /// Beam rows of earlier forwards that beam node `b` descends from, oldest first: one (level, row) per
    /// level. Level l's rows are beam(l)'s order at that time.
    std::vector<int> ancestor_rows(int b) const;
    /// Best nodes - 1 candidates plus the root, nodes in the spec's order; also in the middle of a round,
    /// over everything proposed so far. `out` keeps its memory.
    void rerank(DraftTree& out);
    DraftTree rerank();
    int candidates() const { return static_cast<int>(pool_.size()); }

  private:
    struct Candidate {
        TokenId token;
        int parent;  ///< flat index, -1 = root
        int row;     ///< beam row when it was selected, -1 = never
        float logprob;
        float score;
    };
    float score_of(float logprob, int order) const;
    bool better(int a, int b) const;
    void keep_chosen(std::span<const TokenId> ids, std::span<const float> logprobs,
                     std::span<const int> counts);
    void keep_best(std::size_t first, std::size_t count);

    TokenId root_ = no_token;
    TreeSpec spec_;
    bool draws_ = false;
    std::vector<Candidate> pool_;
    std::vector<BeamNode> beam_;
    std::vector<int> chosen_flat_;  ///< of the nodes of `choices` so far; -1 = left out
    std::vector<std::pair<int, std::shared_ptr<const DraftDistribution>>>
        drawn_from_;  ///< by flat index, -1 = the root
    // Scratch of single calls.
    std::vector<int> order_;          ///< flat indices
    std::vector<int> proposing_row_;  ///< of the level's candidates
    std::vector<BeamNode> next_;
    std::vector<int> node_of_;  ///< by flat index; -1 = left out
};

}  // namespace draftscope
