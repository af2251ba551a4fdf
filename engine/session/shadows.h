#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/session/follow.h"
#include "engine/session/round.h"
#include "engine/session/session_core.h"
#include "engine/session/verified_rows.h"

namespace draftscope {

/// What a sequence keeps for the heads beside the driving one.
struct SequenceShadows {
    struct Lane {
        FollowLane follow;
        std::unique_ptr<DrafterState> drafter;
        int taken = 0;                 ///< slots the drafter has taken in
        TimeNs head_ns = 0;            ///< T_head of the tree that waits
        ActiveSets* active = nullptr;  ///< its own, or those of all sequences when the head has no state
        std::unique_ptr<ActiveSets> own_active;
    };
    std::vector<float> hidden, aux;                   ///< features of every verified slot
    std::vector<TokenId> best;                        ///< [slots, k] of the target's best tokens
    VerifiedRows verified;                            ///< what undecided trees may still ask for
    std::vector<Lane> lanes;                          ///< one per self-paced head
    std::vector<std::unique_ptr<HeadState>> aligned;  ///< one per aligned head; null for those without state
};

/// Heads beside the driving one.
///
/// Self-paced heads follow the text with rounds, trees and state of their own and are judged by the committed
/// text: exact, as a run of the head itself would go. Their work lies between the steps and is in no step's
/// time. Aligned heads draft in rounds of the driving head (BesideDrafts); here their state follows the text
/// round by round and their trees, like those of calibration rounds, are judged.
class ShadowHeads {
  public:
    explicit ShadowHeads(SessionCore& core);

    /// After the prompt's prefill, while its forward is at hand.
    Status begin(Sequence& sequence);
    /// After a step, while its forward is at hand.
    Status follow(std::span<const Round> rounds);
    /// The sequence ends: judges what waits.
    void end(Sequence& sequence);

  private:
    Status follow_head(std::size_t index, std::span<const Round> rounds);
    Status draft(std::size_t index, std::span<Sequence* const> sequences);
    void begin_aligned(Sequence& sequence);
    void observe_aligned(const Round& round, std::span<const TokenId> best);
    void judge_aligned(Sequence& sequence, bool at_end);
    void keep_features(Sequence& sequence);
    void keep_rows(const Round& round);
    void forget_rows(Sequence& sequence);
    HeadEvalRow row_of(std::size_t index, const HeadRound& round, TimeNs head_ns) const;
    bool keeps_rows() const { return core_.options.record_nodes && !(heads_.empty() && aligned_.empty()); }

    struct SelfPaced {
        const ShadowHead* head;
        Follower follower;
        ActiveSets active;  ///< of a head without state
    };

    SessionCore& core_;
    std::vector<SelfPaced> heads_;
    std::vector<const ShadowHead*> aligned_;
    int best_k_ = 0;  ///< of the target's best tokens that any of the heads asks for
};

/// The aligned ones of a run's shadow heads, in the order of SequenceShadows::aligned.
std::vector<const ShadowHead*> aligned_heads(const DecodeOptions& options);
/// Other heads are judged by exact match, so only beside a recorded run under that rule.
bool can_judge_beside(const SessionCore& core);

}  // namespace draftscope
