#pragma once

#include <span>
#include <vector>

#include "base/units.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

/// EAGLE-2's expansion phase and reranking (section on dynamic draft trees). Operates on candidates alone;
/// the drafter supplies each level's top-k. Equal cumulative scores order by flat index, which keeps the
/// selection closed under ancestors. With `choices` in the spec the tree is static (Medusa, EAGLE-1). Its
/// beam is the level's inner nodes. A node without a candidate is left out with its descendants.
class BeamExpansion {
  public:
    BeamExpansion() = default;
    BeamExpansion(TokenId root, const TreeSpec& spec) { reset(root, spec); }
    /// Starts a new tree and keeps the buffers. In a sampled tree the candidates come in sampling order
    /// (EAGLE-1). Expansion and selection then depend on that order alone: selecting by value would bias the
    /// samples of q. A path's rank is the sum of its orders (our default; EAGLE-1 uses one static tree).
    void reset(TokenId root, const TreeSpec& spec, bool sampled = false);

    struct BeamNode {
        int flat = 0;        ///< candidate index
        int parent_row = 0;  ///< row of the previous level's forward that proposed it
        TokenId token = no_token;
        float score = 0;  ///< cumulative log-prob
    };

    /// Level 0: takes the root's candidates (count <= topk, descending). They form the first beam (without
    /// `choices`).
    void start(std::span<const TokenId> ids, std::span<const float> logprobs);
    /// Takes the candidates of every beam row, `counts[r]` of them at ids[r * topk], and selects the next
    /// beam.
    void extend(std::span<const TokenId> ids, std::span<const float> logprobs, std::span<const int> counts);
    const std::vector<BeamNode>& beam() const { return beam_; }
    /// Returns the rows of earlier forwards that beam node `b` descends from, oldest first: one (level, row)
    /// per level. Rows of level l are in the order of beam(l) at that time.
    std::vector<int> ancestor_rows(int b) const;
    /// Selects the best nodes - 1 candidates plus the root, in the spec's order. Also works during a round,
    /// over all candidates so far. `out` keeps its memory.
    void rerank(DraftTree& out);
    DraftTree rerank();
    int candidates() const { return static_cast<int>(pool_.size()); }

  private:
    struct Candidate {
        TokenId token;
        int parent;  ///< flat index; -1 = root
        int row;     ///< beam row when selected; -1 = not selected
        float logprob;
        float score;
    };
    float rank_score(float logprob, int order) const;
    bool better(int a, int b) const;
    void keep_chosen(std::span<const TokenId> ids, std::span<const float> logprobs,
                     std::span<const int> counts);
    void keep_best(std::size_t first, std::size_t count);

    TokenId root_ = no_token;
    TreeSpec spec_;
    bool sampled_ = false;
    std::vector<Candidate> pool_;
    std::vector<BeamNode> beam_;
    std::vector<int> chosen_flat_;  ///< flat index per node of `choices`; -1 = left out
    // Scratch of single calls.
    std::vector<int> order_;          ///< flat indices
    std::vector<int> proposing_row_;  ///< per candidate of the level
    std::vector<BeamNode> next_;
    std::vector<int> node_of_;  ///< by flat index; -1 = left out
};

}  // namespace draftscope
