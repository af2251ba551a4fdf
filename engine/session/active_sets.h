#pragma once

#include <deque>
#include <vector>

#include "engine/heads/head.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// Which tokens a head can propose at each draft level, for coverage: asked token by token once per level and
/// kept, for ever when the head has no state, else for the round. Without a head every token counts.
class ActiveSets {
  public:
    ActiveSets(const Head* head, int vocab) : head_(head), vocab_(vocab) {}

    /// `state` is the sequence's; null for stateless heads.
    void begin_round(const HeadState* state);
    bool covers(TokenId token, int level) const;
    /// Target probability over the active set of `level`, for a row of target logits [>= vocab].
    /// On the calling thread; `exec` names the instruction set.
    double mass(const kernels::Exec& exec, const float* logits, const TargetChoice& choice,
                const Sampling& sampling, int level);
    /// The active set of `level`, unless it is the whole vocabulary: then null.
    const std::vector<TokenId>* part_of_vocab(int level) {
        const Set& set = at(level);
        return set.everything ? nullptr : &set.ids;
    }
    /// Asks for levels 0 .. levels - 1 now and for nothing afterwards: the state may go on. A deeper level is
    /// taken for the last one.
    void freeze(int levels);

  private:
    struct Set {
        bool known = false;
        bool everything = false;
        std::vector<TokenId> ids;
    };
    const Set& at(int level);

    const Head* head_;
    const HeadState* state_ = nullptr;
    int vocab_;
    int frozen_ = 0;        ///< levels; 0 = not
    std::deque<Set> sets_;  ///< by level; they stay where they are
};

}  // namespace draftscope
