#pragma once

#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/recording/recording.h"
#include "engine/replay/draft_overlap.h"
#include "engine/transformer/target.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// The target's distribution after each generated position of a prompt, from recorded hidden states, LM head
/// and recorded sampling. Tokens below 1e-9 are left out: less than 2e-4 of the probability.
class CoveredProbability {
  public:
    /// Scratch memory for all prompts. Allocating it for each would cost as much as the LM head.
    struct Scratch {
        std::vector<float> hidden, logits;
        std::vector<TargetSample> choices;
        std::vector<std::int32_t> best;
    };
    /// For the positions that emitted the first `generated` tokens.
    static Result<CoveredProbability> make(const DecodeRecording& recording, const Target& target,
                                           kernels::Backend& backend, const RecordedPrompt& prompt,
                                           int generated, Scratch& scratch);
    /// Probability of a head's active set after token `row` of the text.
    double of_active_set(int row, const ActiveSet& active);
    /// Returns the sum of min(p, q) over all tokens, for p after token `row` of the text.
    double overlap(int row, const DraftDistribution& q) const;

    std::int64_t rows() const { return static_cast<std::int64_t>(likely_.size()); }
    /// Rows whose best token is the recorded one.
    std::int64_t agreed() const { return agreed_; }

  private:
    std::vector<std::vector<std::pair<TokenId, float>>> likely_;  ///< for each position: id and probability
    int first_row_ = 0;                                           ///< first row, as an index into the text
    std::int64_t agreed_ = 0;
    std::vector<bool> active_;  ///< scratch [vocab]
};

}  // namespace draftscope
