#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/sequence/decode_context.h"
#include "engine/sequence/round.h"
#include "engine/shadow/replay_runner.h"

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
    double covered_prob(const DecodeContext& core, int row, DraftVocab& active, int level) const;

  private:
    struct Row {
        std::vector<float> logits;
        TargetSample choice;
    };
    std::deque<Row> rows_;
    std::vector<std::vector<float>> spare_;  ///< buffers of released rows, for reuse
    int first_ = 0;                          ///< token of the first row in `rows_`
};

/// A tree that another head drafted in a round of the driving head (docs/decisions/0002). It waits until the
/// committed tokens decide it and is then evaluated by exact match.
struct PendingTree {
    DraftTree tree;
    HeadEvalRow row;        ///< complete except for accepted, committed and coverage
    std::size_t first = 0;  ///< index, in the sequence's tokens, of the token after the tree's root
    /// Active sets of the head at the time of the draft; null = the whole vocabulary.
    std::shared_ptr<DraftVocab> active;
};

/// The state that a sequence keeps for its shadow heads.
struct SequenceShadows {
    struct Lane {
        ReplayCursor cursor;
        std::unique_ptr<DrafterState> drafter;
        int processed_slots = 0;             ///< slots that the drafter has processed
        TimeNs head_ns = 0;                  ///< T_head of the tree that is not yet decided
        std::shared_ptr<DraftVocab> active;  ///< all sequences', or its own if the head has a state
    };
    std::vector<float> hidden, aux;                   ///< features of every verified slot
    std::vector<TokenId> best;                        ///< [slots, k] the target's best tokens
    std::vector<int> round_ends;                      ///< tokens after each driving round
    VerifiedLogits verified;                          ///< logits that undecided trees may still need
    std::vector<Lane> lanes;                          ///< one for each self-paced head
    std::vector<std::unique_ptr<HeadState>> aligned;  ///< one for each aligned head; null if stateless
    std::vector<PendingTree> pending;                 ///< of aligned heads and calibration rounds
    int calibrated = 0;                               ///< rounds in which the full head also drafted
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
    /// Removes the pending trees that the text decides and records their rows. At the end of a text all of
    /// them are decided, clipped like the last round.
    void evaluate_pending(Sequence& sequence, bool at_end);

  private:
    bool runs_now(std::size_t index, const Sequence& sequence) const;
    static std::ptrdiff_t rounds_after(const Sequence& sequence, int last);
    Status run_self_paced(std::size_t index, std::span<const Round> rounds);
    Status draft(std::size_t index, std::span<Sequence* const> sequences);
    void observe_aligned(const Round& round, std::span<const TokenId> best);
    Status append_features(Sequence& sequence);
    void append_logits(const Round& round);
    void drop_logits(Sequence& sequence);
    HeadEvalRow make_row(std::size_t index, const HeadRound& round, TimeNs head_ns) const;
    bool keeps_logits() const { return core_.options.record_nodes && !core_.options.shadows.empty(); }

    struct SelfPaced {
        ShadowHead head;
        ReplayRunner runner;
        std::shared_ptr<DraftVocab> active;  ///< only for a head without state
        bool at_end = false;                 ///< follows the text when it has ended
    };

    DecodeContext& core_;
    std::vector<SelfPaced> heads_;
    std::vector<const ShadowHead*> aligned_;
    int best_k_ = 0;        ///< number of the target's best tokens that the heads need
    TimeNs at_end_ns_ = 0;  ///< time of heads that followed texts that had ended
};

/// The aligned heads among a run's shadow heads, in the order of SequenceShadows::aligned.
std::vector<const ShadowHead*> aligned_heads(const DecodeOptions& options);
/// The number of the target's best tokens that these heads read at a position.
int best_tokens_for(std::span<const ShadowHead> shadows);
/// Returns whether other heads can be evaluated: by exact match, so only in a recorded run under that rule.
bool can_evaluate_shadows(const DecodeContext& core);

}  // namespace draftscope
