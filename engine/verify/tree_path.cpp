#include "engine/verify/tree_path.h"

namespace draftscope {

std::vector<int> follow_path(const DraftTree& tree, std::span<const TokenId> text) {
    std::vector<int> path = {0};
    // Children follow their parent, so one pass over the nodes finds the path.
    for (int i = 1; i < tree.size() && path.size() <= text.size(); ++i)
        if (tree.parents[i] == path.back() && tree.tokens[i] == text[path.size() - 1]) path.push_back(i);
    return path;
}

}  // namespace draftscope
