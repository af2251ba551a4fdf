#pragma once

#include <vector>

#include "engine/sequence/decode_context.h"
#include "engine/sequence/round.h"

namespace draftscope {

/// Drafts trees with other heads, from the same states as the driving head. The target never sees these
/// trees; the text decides them. The full head drafts in a few rounds of every prompt (calibration), aligned
/// shadow heads in every round. They draft between two steps, so no step's time includes them.
class ShadowDrafter {
  public:
    explicit ShadowDrafter(DecodeContext& core);

    /// Returns whether heads draft in addition after a step of these rounds.
    bool due(std::span<const Round> rounds) const;
    /// Drafts the trees of a step that was recorded. `jobs` are as the driving head left them.
    Status draft(std::span<const DraftJob> jobs, std::span<const Round> rounds);

  private:
    struct DraftingHead {
        LmHead* head = nullptr;
        std::string text;
        HeadMode mode = HeadMode::calibration;
        std::size_t aligned_index = 0;       ///< index of an aligned head's state in SequenceShadows
        std::shared_ptr<DraftVocab> active;  ///< for a head without state; null = the whole vocabulary
    };
    bool calibrates(std::span<const Round> rounds) const;
    Status draft_with(const DraftingHead& drafting, std::span<const DraftJob> driving,
                      std::span<const Round> rounds);
    std::shared_ptr<DraftVocab> active_set_for(const DraftingHead& drafting, const HeadState* state,
                                               int levels) const;

    DecodeContext& core_;
    DraftRunner drafting_;
    std::vector<DraftingHead> aligned_;
};

/// Part `index` of a time that `parts` sequences share equally. The parts add up to it.
inline TimeNs split_evenly(TimeNs total, std::size_t index, std::size_t parts) {
    const auto i = static_cast<TimeNs>(index), n = static_cast<TimeNs>(parts);
    return total * (i + 1) / n - total * i / n;
}

}  // namespace draftscope
