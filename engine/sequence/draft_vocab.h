#pragma once

#include <deque>
#include <vector>

#include "engine/heads/head.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// The tokens that a head can propose at each draft level, for coverage. A level's set is read from the head
/// once and kept, forever if the head has no state, otherwise for one round, in which it stays valid. Without
/// a head, every token is active.
class DraftVocab {
  public:
    DraftVocab(const LmHead* head, int vocab) : head_(head), vocab_(vocab) {}

    /// `state` is that of the sequence's head; null for stateless heads.
    void begin_round(const HeadState* state);
    bool covers(TokenId token, int level);
    /// Target probability of the active set of `level`, from a row of target logits [>= vocab]. Runs on the
    /// calling thread; `backend` only selects the instruction set.
    double covered_prob(const kernels::Backend& backend, const float* logits, const TargetSample& choice,
                        const Sampling& sampling, int level);
    /// Returns the active set of `level`, ascending, or null if it is the whole vocabulary.
    const std::span<const TokenId>* restricted_ids(int level) {
        const Set& set = at(level);
        return set.everything ? nullptr : &set.ids;
    }
    /// Reads levels 0 .. levels - 1 now and never reads the head again, so that its state may change. Deeper
    /// levels use the last one.
    void freeze(int levels);

  private:
    struct Set {
        bool known = false;
        bool everything = false;
        std::span<const TokenId> ids;  ///< in memory of the head or here
        std::vector<TokenId> memory;
    };
    Set& at(int level);

    const LmHead* head_;
    const HeadState* state_ = nullptr;
    int vocab_;
    int frozen_ = 0;        ///< number of frozen levels; 0 = not frozen
    std::deque<Set> sets_;  ///< by level; a deque, so that references stay valid
};

}  // namespace draftscope
