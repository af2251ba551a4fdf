#pragma once

#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/model/target.h"
#include "engine/replay/trace.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// The target's distribution after each generated position of a prompt, from the trace's hidden states and
/// the LM head, by the trace's sampling. Tokens below 1e-9 are left out: less than 2e-4 of the mass.
class TargetMass {
  public:
    /// Space for one prompt after the other: fresh memory would cost as much as the LM head.
    struct Scratch {
        std::vector<float> hidden, logits;
        std::vector<TargetChoice> choices;
        std::vector<std::int32_t> best;
    };
    /// Of the positions that emitted the first `generated` tokens.
    static Result<TargetMass> make(const Trace& trace, const Target& ends, kernels::Exec& exec,
                                   const TracePrompt& prompt, int generated, Scratch& scratch);
    /// Probability over the head's active set after token `row` of the text.
    double on(int row, const Head& head, const HeadState* state, int level);

    std::int64_t rows() const { return static_cast<std::int64_t>(likely_.size()); }
    /// Rows whose best token is the recorded one.
    std::int64_t agreed() const { return agreed_; }

  private:
    std::vector<std::vector<std::pair<TokenId, float>>> likely_;  ///< per position: id, probability
    int first_row_ = 0;                                           ///< of the text
    std::int64_t agreed_ = 0;
    std::vector<TokenId> ids_;  ///< scratch
    std::vector<bool> active_;  ///< scratch [vocab]
};

}  // namespace draftscope
