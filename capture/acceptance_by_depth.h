#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace draftscope {

/// Acceptance at one depth of the draft trees, given that the round got there: its tree was that deep and
/// everything above was accepted. The same in the window, in `replay` and in docs/FORMATS.md's query.
struct DepthAcceptance {
    std::int64_t reached = 0;
    std::int64_t accepted = 0;  ///< of them, those that kept a draft of this depth
    double rate() const {
        return reached == 0 ? 0 : static_cast<double>(accepted) / static_cast<double>(reached);
    }
};

/// Adds a round to `depths`, [depth - 1]. Every round counts, warm-up included; but a clipped one, which was
/// cut at the end of the text, says nothing about it.
inline void add_round(std::vector<DepthAcceptance>& depths, int tree_depth, int accepted, bool clipped) {
    if (clipped) return;
    const auto reached = static_cast<std::size_t>(std::min(tree_depth, accepted + 1));
    depths.resize(std::max(depths.size(), reached));
    for (std::size_t i = 0; i < reached; ++i) {
        ++depths[i].reached;
        if (i < static_cast<std::size_t>(accepted)) ++depths[i].accepted;
    }
}

}  // namespace draftscope
