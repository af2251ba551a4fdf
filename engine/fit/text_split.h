#pragma once

#include <span>
#include <vector>

namespace draftscope::fit {

struct HoldOut {
    int every = 10;  ///< each so many-th usable text is kept for the report ...
    int most = 60;   ///< ... but no more than so many
};

/// Which texts a fit learns from and which it is judged on: one rule for rankings, rows and joint training,
/// so that nothing is judged on what it has seen.
class TextSplit {
  public:
    /// `generated[t]` tokens follow the prompt of text t; texts with fewer than two are passed over. Of two
    /// or more usable texts at least one is held out; of one, none.
    TextSplit(std::span<const int> generated, HoldOut hold_out);

    /// Positions in `generated`, rising.
    const std::vector<int>& usable() const { return usable_; }
    /// Is usable()[ordinal] held out?
    bool held_out(int ordinal) const { return ordinal % every_ == every_ - 1; }
    std::vector<int> texts(bool held_out) const;

  private:
    std::vector<int> usable_;
    int every_ = 2;
};

}  // namespace draftscope::fit
