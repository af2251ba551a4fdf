#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace draftscope {

/// Acceptance rate at one depth of the draft trees. A round reaches a depth if its tree is that deep and it
/// accepted the token above. The window, the command `replay` and the query in docs/FORMATS.md use this
/// definition.
struct DepthAcceptance {
    std::int64_t reached = 0;
    std::int64_t accepted = 0;  ///< rounds that accepted a draft token of this depth
    double rate() const {
        return reached == 0 ? 0 : static_cast<double>(accepted) / static_cast<double>(reached);
    }
};

/// Adds one round to `depths`, indexed by depth - 1. Warm-up rounds count. Clipped rounds don't, because the
/// end of the text cut them; nor do imported rounds of unknown depth.
inline void add_round(std::vector<DepthAcceptance>& depths, int tree_depth, int accepted, bool clipped) {
    if (clipped || tree_depth < 0) return;
    const auto reached = static_cast<std::size_t>(std::min(tree_depth, accepted + 1));
    depths.resize(std::max(depths.size(), reached));
    for (std::size_t i = 0; i < reached; ++i) {
        ++depths[i].reached;
        if (i < static_cast<std::size_t>(accepted)) ++depths[i].accepted;
    }
}

}  // namespace draftscope
