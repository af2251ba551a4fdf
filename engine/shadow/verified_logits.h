#pragma once

#include <deque>
#include <vector>

#include "engine/decode/draft_vocab.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// The target's logits after the latest committed tokens, kept to evaluate other heads after their forward
/// output was overwritten.
class VerifiedLogits {
  public:
    /// Appends a copy of the logits after token `row` of the sequence. Rows must be contiguous.
    void add(int row, Rows<const float> logits, const TargetSample& choice);
    /// Releases the rows before `row`.
    void drop_before(int row);
    /// Probability, after token `row`, of the active set at draft level `level`.
    double covered_prob(const kernels::Backend& backend, int row, DraftVocab& active,
                        const Sampling& sampling, int level) const;

  private:
    struct Row {
        std::vector<float> logits;
        TargetSample choice;
    };
    std::deque<Row> rows_;
    std::vector<std::vector<float>> spare_;  ///< buffers of released rows, for reuse
    int first_ = 0;                          ///< token of the first row in `rows_`
};

}  // namespace draftscope
