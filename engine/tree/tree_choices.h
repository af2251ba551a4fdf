#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A tree fixed in advance, as Medusa's "sparse tree choices": which ranks of which nodes are drafted. The
/// path (0, 2) is the third best candidate under the root's best one.
struct TreeChoices {
    struct Node {
        int parent = -1;  ///< index here; -1 = the root
        int rank = 0;     ///< among the candidates of its parent, 0 = best
        int depth = 1;
        bool inner = false;  ///< has children
        bool operator==(const Node&) const = default;
    };
    std::string name;         ///< of a published tree, or the file
    std::vector<Node> nodes;  ///< by depth, then by path, as Medusa numbers them; parents come first
    int whole_levels = 0;     ///< of the list; more than levels() once it was cut
    bool operator==(const TreeChoices&) const = default;

    int levels() const { return nodes.empty() ? 0 : nodes.back().depth; }
    int widest_rank() const;  ///< highest rank of any node
    int inner_nodes() const;
};

/// `paths` in any order. A path without its parent, given twice, deeper than 64 or with a rank over 63, or
/// more than 1023 of them: an error naming the path.
Result<TreeChoices> make_tree_choices(std::string_view name, std::vector<std::vector<int>> paths);
/// A published tree by name, else a JSON file with a list of paths: [[0], [0, 0], [1]].
Result<TreeChoices> find_tree_choices(std::string_view name_or_file);
/// The first `levels` levels.
TreeChoices cut_choices(const TreeChoices& choices, int levels);

struct PublishedChoices {
    std::string_view name;
    std::string_view paths;  ///< one digit per level, paths separated by spaces
};
std::span<const PublishedChoices> published_choices();

}  // namespace draftscope
