#pragma once

#include <span>
#include <vector>

#include "base/numel.h"
#include "base/reusable_vector.h"
#include "engine/draft/drafter.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

/// Calls a head for one draft level on the CPU. Buffers are reused between levels.
class CandidateSampler {
  public:
    /// Calls the head for one level. Entry jobs[r] is the job of hidden row r, which drafts the token of
    /// `level` after the job's root.
    void propose(DraftContext& context, Rows<const float> hidden, std::span<const DraftJob* const> jobs,
                 int level, int k);

    /// Writes the candidates of all rows: ids and logits [rows, k], id -1 after a row's last one, and
    /// log-sums [rows].
    void store(int k, std::int32_t* ids, float* logits, float* logsumexp) const;
    /// The logits that drafts are sampled from, one for each row, if the context samples.
    std::span<const SparseLogits> support() const { return {support_.data(), support_.size()}; }

  private:
    void support_from_candidates();
    std::size_t at(int row, int candidate) const { return numel(row, proposal_.k) + candidate; }

    Proposal proposal_;
    std::vector<HeadState*> states_;
    ReusableVector<SparseLogits> support_;
};

}  // namespace draftscope
