#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/reused.h"
#include "engine/draft/drafter.h"
#include "engine/tree/expansion.h"
#include "kernels/device.h"

namespace draftscope {

/// The candidates of one draft level: the head's best tokens of each row, or draws from the head's
/// distribution when the context says so. Keeps its memory between levels.
class CandidateRows {
  public:
    /// Calls the head. jobs[r] is the job of hidden row r, which drafts the token at `level` behind its root.
    void propose(DraftContext& context, Rows<const float> hidden, std::span<const DraftJob* const> jobs,
                 int level, int k);

    /// Grows a tree by this level. The candidates of beam node p, of which there are `parents` (the root
    /// alone at level 0), are those of row first + p * step; `topk` of them count.
    void extend(BeamExpansion& beam, int level, int parents, int first, int step, int topk);

  private:
    void support_from_candidates();
    void draw(DraftContext& context, std::span<const DraftJob* const> jobs, int level, int k);
    bool draw_there(DraftContext& context, std::span<const DraftJob* const> jobs, int level, int k);
    void find_distributions(std::size_t rows);
    void take_drawn(std::size_t row, std::span<const DrawnDraft> drawn);
    std::size_t at(int row, int candidate) const {
        return static_cast<std::size_t>(row) * static_cast<std::size_t>(proposal_.k) +
               static_cast<std::size_t>(candidate);
    }

    Proposal proposal_;
    std::vector<HeadState*> states_;
    Reused<SupportRow> support_;
    std::vector<std::shared_ptr<DraftDistribution>> distributions_;      ///< all that were made
    std::vector<std::shared_ptr<DraftDistribution>> drawn_from_;         ///< of those, the level's
    std::vector<DrawScratch> scratch_;                                   ///< by thread
    kernels::DeviceBuffer logits_there_, uniforms_there_, drawn_there_;  ///< of draw_there()
    std::vector<TokenId> ids_;
    std::vector<float> logprobs_;
    std::vector<int> counts_;
};

/// Begins a job's tree, of the kind that the context asks for.
inline void begin_tree(BeamExpansion& beam, const DraftContext& context, const DraftJob& job) {
    beam.reset(job.tokens.back(), job.tree, context.sampled != nullptr);
}

/// Lets the watcher see the trees after a level. A growth has a `job` and its `beam`.
template <typename Growth>
void tell_watcher(const DraftContext& context, std::span<Growth*> growths, int level) {
    if (context.watcher == nullptr) return;
    for (Growth* growth : growths)
        context.watcher->level_done(growth->job->sequence, level, [&] {
            DraftTree partial = growth->beam.rerank();
            (void)partial.finish();  // a tree of our own candidates; a twin shows again in rerank_all()
            return partial;
        });
}

/// The finished trees, of all jobs in one phase.
template <typename Growth>
Status rerank_all(const DraftContext& context, Reused<Growth>& growths) {
    int candidates = 0;
    for (const Growth& growth : growths) candidates += growth.beam.candidates();
    PhaseScope scope(context.phases, Phase::rerank, 0, candidates);
    for (Growth& growth : growths) {
        growth.beam.rerank(growth.job->out);
        Status finished = growth.job->out.finish();
        kernels::Device* device = context.exec.device();
        // A device whose memory is out proposes nothing that makes a tree: what it says of that comes first.
        if (!finished.ok() && device != nullptr) {
            const std::lock_guard lock(device->busy());
            DS_TRY(device->finish());
        }
        DS_TRY(finished);
    }
    return {};
}

}  // namespace draftscope
