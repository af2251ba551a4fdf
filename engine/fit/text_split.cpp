#include "engine/fit/text_split.h"

#include <algorithm>

namespace draftscope::fit {

TextSplit::TextSplit(std::span<const int> generated, HoldOut hold_out) {
    for (std::size_t t = 0; t < generated.size(); ++t)
        if (generated[t] >= 2) usable_.push_back(static_cast<int>(t));
    const auto count = static_cast<int>(usable_.size());
    const int min_every = (count + std::max(hold_out.max_texts, 1) - 1) / std::max(hold_out.max_texts, 1);
    // If there are few texts, the last one is held out.
    every_ = std::max(2, std::min(std::max(hold_out.every, min_every), count));
}

std::vector<int> TextSplit::texts(bool held_out) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < usable_.size(); ++i)
        if (this->held_out(static_cast<int>(i)) == held_out) found.push_back(usable_[i]);
    return found;
}

}  // namespace draftscope::fit
