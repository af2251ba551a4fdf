#pragma once

#include <span>
#include <vector>

namespace draftscope::fit {

struct HoldOut {
    int every = 10;      ///< one of so many usable texts is held out ...
    int max_texts = 60;  ///< ... but not more than this many
};

/// Splits texts into training and held-out ones. Rankings, rows and joint training share it, so that nothing
/// is evaluated on its training texts.
class TextSplit {
  public:
    /// `generated[t]` is the number of tokens after the prompt of text t. Texts with fewer than two are
    /// skipped. Of two or more usable texts at least one is held out.
    TextSplit(std::span<const int> generated, HoldOut hold_out);

    /// Indices into `generated`, ascending.
    const std::vector<int>& usable() const { return usable_; }
    /// Returns whether usable()[ordinal] is held out.
    bool held_out(int ordinal) const { return ordinal % every_ == every_ - 1; }
    std::vector<int> texts(bool held_out) const;

  private:
    std::vector<int> usable_;
    int every_ = 2;
};

}  // namespace draftscope::fit
