#include <cassert>

#include "engine/verify/verify.h"

namespace draftscope {

void accept_match(const DraftTree& tree, std::span<const TargetSample> choices, Acceptance& out) {
    assert(choices.size() == tree.tokens.size());
    out.path.assign(1, 0);
    std::size_t at = 0;
    // Children follow their parent, so one pass over the nodes finds the path.
    for (std::size_t i = 1; i < tree.tokens.size(); ++i) {
        if (tree.parents[i] != static_cast<int>(at) || tree.tokens[i] != choices[at].token) continue;
        at = i;
        out.path.push_back(static_cast<int>(i));
    }
    out.bonus = choices[at].token;
}

}  // namespace draftscope
