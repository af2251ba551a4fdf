#pragma once

#include <vector>

#include "engine/session/session_core.h"

namespace draftscope {

/// Drafts of other heads in the rounds of the driving one: what they would have proposed from the same
/// states, to be judged by the text that follows. Never seen by the target. The full head does so in the
/// first rounds of each prompt (calibration: every prompt, so that each conversation has some), aligned
/// shadow heads in every other one.
class BesideDrafts {
  public:
    explicit BesideDrafts(SessionCore& core);

    /// Whether step `step` of the run has any for the sequences that draft in it. Every other one, so that a
    /// short run has counted steps as well.
    bool due(std::int64_t step, std::span<Sequence* const> sequences) const;
    /// `jobs` as the driving head left them and the sequence of each; `indices` = their rounds in the step.
    Status draft(std::span<const DraftJob> jobs, std::span<Sequence* const> sequences,
                 std::span<const std::size_t> indices);
    /// T_head spent here since the last call, of the step's spans.
    TimeNs take_head_ns() { return std::exchange(head_ns_, 0); }

  private:
    struct Beside {
        Head* head = nullptr;
        std::string text;
        HeadMode mode = HeadMode::calibration;
        std::size_t place = 0;               ///< of an aligned head's state in SequenceShadows
        std::shared_ptr<ActiveSets> active;  ///< of a head without state; null = it leaves nothing out
    };
    bool calibrates(std::span<Sequence* const> sequences) const;
    Status draft_with(const Beside& beside, std::span<const DraftJob> jobs,
                      std::span<Sequence* const> sequences, std::span<const std::size_t> indices);
    std::shared_ptr<ActiveSets> active_of(const Beside& beside, const HeadState* state, int levels) const;

    SessionCore& core_;
    std::vector<Beside> aligned_;
    TimeNs head_ns_ = 0;
};

/// Part `index` of `parts` equal ones of a time that several sequences share; the parts add up to it.
inline TimeNs part_of(TimeNs whole, std::size_t index, std::size_t parts) {
    const auto i = static_cast<TimeNs>(index), n = static_cast<TimeNs>(parts);
    return whole * (i + 1) / n - whole * i / n;
}

}  // namespace draftscope
