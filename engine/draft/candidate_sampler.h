#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/numel.h"
#include "base/reusable_vector.h"
#include "engine/draft/drafter.h"
#include "engine/tree/expansion.h"

namespace draftscope {

/// The candidates of one draft level: the head's best tokens of each row, or samples from its distribution.
/// Buffers are reused between levels.
class CandidateSampler {
  public:
    /// Calls the head for one level. Entry jobs[r] is the job of hidden row r, which drafts the token of
    /// `level` after the job's root.
    void propose(DraftContext& context, Rows<const float> hidden, std::span<const DraftJob* const> jobs,
                 int level, int k);

    /// Expands a tree by this level. Beam node p of `parents` (level 0: the root alone) takes the first
    /// `topk` candidates of row first + p * step.
    void extend(BeamExpansion& beam, int level, int parents, int first, int step, int topk);

  private:
    void support_from_candidates();
    void draw(DraftContext& context, std::span<const DraftJob* const> jobs, int level, int k);
    void reuse_distributions(std::size_t rows);
    void store_samples(std::size_t row, std::span<const SampledToken> drawn);
    std::size_t at(int row, int candidate) const { return numel(row, proposal_.k) + candidate; }

    Proposal proposal_;
    std::vector<HeadState*> states_;
    ReusableVector<SparseLogits> support_;
    std::vector<std::shared_ptr<DraftDistribution>> distributions_;  ///< every distribution allocated so far
    std::vector<std::shared_ptr<DraftDistribution>> drawn_from_;     ///< those in use at this level, by row
    std::vector<DraftSampleScratch> scratch_;                        ///< by thread
    std::vector<TokenId> ids_;
    std::vector<float> logprobs_;
    std::vector<int> counts_;
};

/// Begins a job's tree: of sampled or of best candidates, as the context says.
inline void begin_tree(BeamExpansion& beam, const DraftContext& context, const DraftJob& job) {
    beam.reset(job.tokens.back(), job.tree, context.sampled != nullptr);
}

/// Reports the trees to the observer after a level. Each expansion has a `job` and a `beam`.
template <typename Expansion>
void notify_observer(const DraftContext& context, std::span<Expansion*> expansions, int level) {
    if (context.observer == nullptr) return;
    for (Expansion* expansion : expansions)
        context.observer->level_done(expansion->job->sequence, level, [&] {
            DraftTree partial = expansion->beam.rerank();
            (void)partial.finish();  // ignored here: rerank_all() reports invalid trees
            return partial;
        });
}

/// Reranks and finishes the trees of all jobs in one phase.
template <typename Expansion>
Status rerank_all(const DraftContext& context, ReusableVector<Expansion>& expansions) {
    int candidates = 0;
    for (const Expansion& expansion : expansions) candidates += expansion.beam.candidates();
    PhaseScope scope(context.phases, Phase::rerank, 0, candidates);
    for (Expansion& expansion : expansions) {
        expansion.beam.rerank(expansion.job->out);
        DS_TRY(expansion.job->out.finish());
    }
    return {};
}

}  // namespace draftscope
