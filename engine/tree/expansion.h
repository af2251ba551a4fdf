#pragma once

#include <span>
#include <vector>

#include "base/units.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// EAGLE-2's expansion phase and re-ranking (reference: EAGLE-2, section on dynamic draft trees). Pure
/// bookkeeping over candidates; the drafter supplies each level's top-k. Ties: equal cumulative score ->
/// smaller flat index first, which keeps the selection closed under ancestors.
class BeamExpansion {
  public:
    BeamExpansion(TokenId root, const TreeSpec& spec) : root_(root), spec_(spec) {}

    struct BeamNode {
        int flat = 0;        ///< candidate index
        int parent_row = 0;  ///< row of the previous level's forward that proposed it
        TokenId token = no_token;
        float score = 0;  ///< cumulative log-prob
    };

    /// Level 0: the root's candidates (count <= topk, descending). Becomes the first beam as a whole.
    void start(std::span<const TokenId> ids, std::span<const float> logprobs);
    /// Candidates of every beam row, `counts[r]` of them at ids[r * topk]. Selects the next beam.
    void extend(std::span<const TokenId> ids, std::span<const float> logprobs, std::span<const int> counts);
    const std::vector<BeamNode>& beam() const { return beam_; }
    /// Beam rows of earlier forwards that beam node `b` descends from, oldest first: one (level, row) per
    /// level. Level l's rows are beam(l)'s order at that time.
    std::vector<int> ancestor_rows(int b) const;
    /// Best nodes - 1 candidates plus the root, nodes ordered by flat index.
    DraftTree rerank() const;
    int candidates() const { return static_cast<int>(pool_.size()); }
    /// The tree over everything proposed so far (for looking at a round in flight).
    DraftTree partial() const { return rerank(); }

  private:
    struct Candidate {
        TokenId token;
        int parent;  ///< flat index, -1 = root
        int row;     ///< beam row when it was selected, -1 = never
        float logprob;
        float score;
    };
    TokenId root_;
    TreeSpec spec_;
    std::vector<Candidate> pool_;
    std::vector<BeamNode> beam_;
};

}  // namespace draftscope
