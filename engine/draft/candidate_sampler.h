#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/numel.h"
#include "base/reusable_vector.h"
#include "engine/draft/drafter.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

/// The candidates of one draft level: the head's best tokens of each row, or samples from its distribution.
/// Buffers are reused between levels.
class CandidateSampler {
  public:
    /// Calls the head for one level. Entry jobs[r] is the job of hidden row r, which drafts the token of
    /// `level` after the job's root.
    void propose(DraftContext& context, Rows<const float> hidden, std::span<const DraftJob* const> jobs,
                 int level, int k);

    /// Writes the candidates of all rows: ids and logits [rows, k], id -1 after a row's last one, and
    /// log-sums [rows]. The logits of samples are log-probabilities.
    void store(int k, std::int32_t* ids, float* logits, float* logsumexp) const;
    /// The distribution that a row's candidates were sampled from.
    const std::shared_ptr<DraftDistribution>& distribution(int row) const { return drawn_from_[row]; }

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
};

}  // namespace draftscope
