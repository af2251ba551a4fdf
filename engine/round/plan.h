#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/numel.h"
#include "base/units.h"

namespace draftscope {

/// The size of a tree before it is drafted.
struct TreePlan {
    int nodes = 1;       ///< at most, including the root
    int levels = 0;      ///< below the root
    int max_path = 1;    ///< upper bound of the accepted path's nodes, including the root
    bool grows = false;  ///< drafted on the backend, where it may get fewer nodes
};

/// What the host knows of a step before it runs. The plan keeps its memory from step to step.
struct RoundPlan {
    std::vector<TreePlan> trees;
    int width = 1;       ///< levels of the deepest tree, including the root's
    int max_drafts = 0;  ///< maximum children of a node, for rejection sampling; 0 = not used
    /// [trees, width] for the target's choice after a node, by its depth; empty = greedy.
    std::vector<double> uniforms;
    std::vector<double> draft_uniforms;  ///< [trees, width, max_drafts] for the acceptance of a node's drafts
    /// [trees, width] token sets whose probability after a node of the path is requested, by its depth; null
    /// = none. Empty = none is requested, or the head makes them.
    std::vector<const std::span<const TokenId>*> sets;
    bool sets_by_head = false;  ///< the head makes the sets of the trees that grow

    void clear() {
        trees.clear();
        uniforms.clear();
        draft_uniforms.clear();
        sets.clear();
        width = 1;
        max_drafts = 0;
        sets_by_head = false;
    }
    void add(const TreePlan& tree) {
        trees.push_back(tree);
        width = std::max(width, tree.levels + 1);
    }
    /// Index of a tree's entry of a depth, in arrays of [trees, width].
    std::size_t at(std::size_t tree_index, int depth) const { return tree_index * width + depth; }
    int count() const { return static_cast<int>(trees.size()); }
};

}  // namespace draftscope
