#pragma once

#include <span>
#include <vector>

#include "engine/tree/draft_tree.h"

namespace draftscope {

/// Returns the path along the tokens of a text after the root, root first.
std::vector<int> follow_path(const DraftTree& tree, std::span<const TokenId> text);

}  // namespace draftscope
