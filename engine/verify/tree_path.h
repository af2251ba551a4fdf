#pragma once

#include <span>
#include <vector>

#include "engine/tree/draft_tree.h"

/// Paths through draft trees.
namespace draftscope {

/// Sets `path` to the nodes along known tokens, root first. `next_token(path)` returns the token after the
/// last node of a path, no_token = unknown.
template <typename NextToken>
void follow_path(const DraftTree& tree, NextToken next_token, std::vector<int>& path) {
    path.assign(1, 0);
    TokenId token = next_token(path);
    // Children follow their parent, so one pass over the nodes finds the path.
    for (int i = 1; i < tree.size(); ++i) {
        if (tree.parents[i] != path.back() || tree.tokens[i] != token) continue;
        path.push_back(i);
        token = next_token(path);
    }
}
/// Returns the path along the tokens of a text after the root.
std::vector<int> follow_path(const DraftTree& tree, std::span<const TokenId> text);

/// Sets `path` to the nodes from the root to `node`.
void path_to(const DraftTree& tree, int node, std::vector<int>& path);

}  // namespace draftscope
