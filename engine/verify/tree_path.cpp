#include "engine/verify/tree_path.h"

#include <algorithm>

namespace draftscope {

std::vector<int> follow_path(const DraftTree& tree, std::span<const TokenId> text) {
    std::vector<int> path;
    const auto next_token = [&](const std::vector<int>& known) {
        return known.size() <= text.size() ? text[known.size() - 1] : no_token;
    };
    follow_path(tree, next_token, path);
    return path;
}

void path_to(const DraftTree& tree, int node, std::vector<int>& path) {
    path.clear();
    for (int at = node; at >= 0; at = tree.parents[at]) path.push_back(at);
    std::reverse(path.begin(), path.end());
}

}  // namespace draftscope
