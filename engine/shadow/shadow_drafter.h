#pragma once

#include <vector>

#include "engine/decode/decode_context.h"

namespace draftscope {

/// Drafts trees with other heads, from the same states as the driving head. The target never sees these
/// trees; the text that follows decides them. The full head drafts in the first rounds of every prompt
/// (calibration), aligned shadow heads in every second round.
class ShadowDrafter {
  public:
    explicit ShadowDrafter(DecodeContext& core);

    /// Returns whether step `step` of the run drafts such trees. At most every second step does, so that a
    /// short run has counted steps as well.
    bool due(std::int64_t step, std::span<Sequence* const> sequences) const;
    /// `jobs` are as the driving head left them, with the sequence and the round index of each.
    Status draft(std::span<const DraftJob> jobs, std::span<Sequence* const> sequences,
                 std::span<const std::size_t> indices);
    /// T_head of these drafts since the last call; part of the step's spans.
    TimeNs take_head_ns() { return std::exchange(head_ns_, 0); }

  private:
    struct DraftingHead {
        LmHead* head = nullptr;
        std::string text;
        HeadMode mode = HeadMode::calibration;
        std::size_t aligned_index = 0;       ///< index of an aligned head's state in SequenceShadows
        std::shared_ptr<DraftVocab> active;  ///< for a head without state; null = the whole vocabulary
    };
    bool calibrates(std::span<Sequence* const> sequences) const;
    Status draft_with(const DraftingHead& drafting, std::span<const DraftJob> jobs,
                      std::span<Sequence* const> sequences, std::span<const std::size_t> indices);
    std::shared_ptr<DraftVocab> active_set_for(const DraftingHead& drafting, const HeadState* state,
                                               int levels) const;

    DecodeContext& core_;
    std::vector<DraftingHead> aligned_;
    TimeNs head_ns_ = 0;
};

/// Part `index` of a time that `parts` sequences share equally. The parts add up to it.
inline TimeNs split_evenly(TimeNs whole, std::size_t index, std::size_t parts) {
    const auto i = static_cast<TimeNs>(index), n = static_cast<TimeNs>(parts);
    return whole * (i + 1) / n - whole * i / n;
}

}  // namespace draftscope
