#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/session/follow.h"
#include "engine/session/round.h"
#include "engine/session/session_core.h"

namespace draftscope {

/// What a sequence keeps for the heads that follow its text.
struct SequenceShadows {
    struct Lane {
        FollowLane follow;
        std::unique_ptr<DrafterState> drafter;
        int taken = 0;       ///< slots the drafter has taken in
        TimeNs head_ns = 0;  ///< T_head of the tree that waits
    };
    std::vector<float> hidden, aux;  ///< features of every verified slot
    std::vector<TokenId> best;       ///< [slots, k] of the target's best tokens
    std::vector<Lane> lanes;         ///< one per shadow head
};

/// Heads that follow the text beside the driving one, each at its own pace: with rounds, trees and state of
/// its own, judged by the committed text. Exact, as a run of the head itself would go. Their work lies
/// between the steps and is in no step's time.
class ShadowHeads {
  public:
    explicit ShadowHeads(SessionCore& core);

    /// After the prompt's prefill, while its forward is at hand.
    Status begin(Sequence& sequence);
    /// After a step, while its forward is at hand.
    Status follow(std::span<const Round> rounds);

  private:
    Status follow_head(std::size_t index, std::span<const Round> rounds);
    Status draft(std::size_t index, std::span<Sequence* const> sequences);
    Status catch_up(Sequence& sequence, SequenceShadows::Lane& lane);
    void keep_features(Sequence& sequence);
    HeadEvalRow row_of(std::size_t index, const HeadRound& round, TimeNs head_ns) const;

    SessionCore& core_;
    std::vector<Follower> followers_;
    int best_k_ = 0;  ///< of the target's best tokens that any of the heads asks for
};

}  // namespace draftscope
