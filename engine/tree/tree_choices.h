#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A static tree, as Medusa's "sparse tree choices": the drafted ranks at each node. The path (0, 2) is the
/// third best candidate under the root's best one.
struct TreeChoices {
    struct Node {
        int parent = -1;  ///< index in `nodes`; -1 = the root
        int rank = 0;     ///< among the candidates of its parent, 0 = best
        int depth = 1;
        bool inner = false;  ///< has children
        bool operator==(const Node&) const = default;
    };
    std::string name;         ///< name of a published tree, or the file
    std::vector<Node> nodes;  ///< by depth, then by path (Medusa's numbering); parents precede children
    int total_levels = 0;     ///< levels of the complete list; more than levels() after truncate_choices()
    bool operator==(const TreeChoices&) const = default;

    int levels() const { return nodes.empty() ? 0 : nodes.back().depth; }
    int max_rank() const;  ///< highest rank of any node
    int inner_nodes() const;
};

/// Builds a tree from `paths` in any order. An error names a path that lacks its parent, occurs twice, is
/// deeper than 64 or has a rank above 63. More than 1023 paths are an error.
Result<TreeChoices> make_tree_choices(std::string_view name, std::vector<std::vector<int>> paths);
/// Finds a published tree by name, else reads a JSON file with a list of paths: [[0], [0, 0], [1]].
Result<TreeChoices> find_tree_choices(std::string_view name_or_file);
/// Returns the first `levels` levels.
TreeChoices truncate_choices(const TreeChoices& choices, int levels);

/// A static tree published with a paper.
struct PublishedChoices {
    std::string_view name;
    std::string_view paths;  ///< one digit per level, paths separated by spaces
};
std::span<const PublishedChoices> published_choices();

}  // namespace draftscope
