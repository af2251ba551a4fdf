#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/decode/decode_context.h"
#include "engine/decode/round.h"
#include "engine/shadow/replay_runner.h"
#include "engine/shadow/verified_logits.h"

namespace draftscope {

/// The state that a sequence keeps for its shadow heads.
struct SequenceShadows {
    struct Lane {
        ReplayCursor cursor;
        std::unique_ptr<DrafterState> drafter;
        int processed_slots = 0;       ///< slots that the drafter has processed
        TimeNs head_ns = 0;            ///< T_head of the tree that is not yet decided
        DraftVocab* active = nullptr;  ///< `private_active`, or the shared sets if the head has no state
        std::unique_ptr<DraftVocab> private_active;
    };
    std::vector<float> hidden, aux;                   ///< features of every verified slot
    std::vector<TokenId> best;                        ///< [slots, k] the target's best tokens
    std::vector<int> round_ends;                      ///< tokens after each driving round
    VerifiedLogits verified;                          ///< logits that undecided trees may still need
    std::vector<Lane> lanes;                          ///< one for each self-paced head
    std::vector<std::unique_ptr<HeadState>> aligned;  ///< one for each aligned head; null if stateless
};

/// Evaluates heads in addition to the driving one. Self-paced heads follow the text with their own rounds,
/// trees and state, exactly as in a run of their own, and are evaluated against the committed text. They run
/// between steps, outside their time. The full head may follow a text when it has ended, if that is quick.
/// Aligned heads draft in rounds of the driving head (ShadowDrafter); this class updates their state after
/// each round and evaluates their trees and those of calibration rounds.
class ShadowEvaluator {
  public:
    explicit ShadowEvaluator(DecodeContext& core);

    /// Call after the prompt's prefill, before the next forward pass.
    Status begin(Sequence& sequence);
    /// Call after a step, before the next forward pass.
    Status after_step(std::span<const Round> rounds);
    /// Call when the sequence ends. Evaluates all pending trees.
    void end(Sequence& sequence);

  private:
    bool runs_now(std::size_t index, const Sequence& sequence) const;
    static std::ptrdiff_t rounds_after(const Sequence& sequence, int last);
    Status run_self_paced(std::size_t index, std::span<const Round> rounds);
    Status draft(std::size_t index, std::span<Sequence* const> sequences);
    void begin_aligned(Sequence& sequence);
    void observe_aligned(const Round& round, std::span<const TokenId> best);
    void evaluate_aligned(Sequence& sequence, bool at_end);
    Status append_features(Sequence& sequence);
    void append_logits(const Round& round);
    void drop_logits(Sequence& sequence);
    HeadEvalRow make_row(std::size_t index, const HeadRound& round, TimeNs head_ns) const;
    bool keeps_logits() const { return core_.options.record_nodes && !core_.options.shadows.empty(); }

    struct SelfPaced {
        ShadowHead head;
        ReplayRunner runner;
        DraftVocab active;    ///< only for a head without state
        bool at_end = false;  ///< follows the text when it has ended
    };

    DecodeContext& core_;
    std::vector<SelfPaced> heads_;
    std::vector<const ShadowHead*> aligned_;
    int best_k_ = 0;           ///< number of the target's best tokens that the heads need
    TimeNs at_end_spent_ = 0;  ///< time of heads that followed texts that had ended
};

/// The aligned heads among a run's shadow heads, in the order of SequenceShadows::aligned.
std::vector<const ShadowHead*> aligned_heads(const DecodeOptions& options);
/// Returns whether other heads can be evaluated: by exact match, so only in a recorded run under that rule.
bool can_evaluate_shadows(const DecodeContext& core);

}  // namespace draftscope
