#pragma once

#include <deque>
#include <vector>

#include "engine/session/active_sets.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// The target's view after each of the latest committed tokens: what heads beside the driving one are judged
/// by when the forward that verified a token has been overwritten.
class VerifiedRows {
  public:
    /// The next row, of token `row` of the sequence; rows come without a gap. Keeps a copy of the logits.
    void add(int row, Rows<const float> logits, const TargetChoice& choice);
    /// Rows before `row` are not asked for any more.
    void forget_before(int row);
    /// Probability over the active set at draft level `level`, of what follows token `row`.
    double mass(const kernels::Exec& exec, int row, ActiveSets& active, const Sampling& sampling,
                int level) const;

  private:
    struct Row {
        std::vector<float> logits;
        TargetChoice choice;
    };
    std::deque<Row> rows_;
    std::vector<std::vector<float>> spare_;  ///< buffers of rows that were forgotten
    int first_ = 0;                          ///< token of the first row kept
};

}  // namespace draftscope
