#include "engine/draft/tree_levels.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {

int width_at(const TreeSpec& tree, int level) {
    if (level == 0) return 1;
    if (!tree.choices) return tree.topk;
    return static_cast<int>(std::ranges::count_if(tree.choices->nodes, [&](const TreeChoices::Node& node) {
        return node.inner && node.depth == level;
    }));
}

int max_width(const TreeSpec& tree) {
    int widest = 0;
    for (int level = 0; level < tree.levels(); ++level) widest = std::max(widest, width_at(tree, level));
    return widest;
}

int total_width(const TreeSpec& tree) {
    return 1 + tree.drafting_nodes();
}

Status check_ops(const TreeSpec& tree, int topk) {
    const int widest = max_width(tree), candidates = total_width(tree) * topk;
    if (topk > kernels::max_topk || widest > kernels::max_topk)
        return bad_input("--tree: a device grows at most {} candidates and nodes per level, found {}",
                         kernels::max_topk, std::max(topk, widest));
    if (!kernels::can_rerank(candidates, std::min(tree.nodes, candidates + 1)))
        return bad_input(
            "--tree: {} candidates, but a device re-ranks at most {}; use a smaller depth or topk",
            candidates, kernels::max_candidates);
    return {};
}

/// Nodes are ordered by level and then by path, like the candidates of their parents.
bool StaticLevels::upload(kernels::Backend& backend, std::span<const TreeSpec* const> trees, int topk,
                          bool sampled) {
    values_.clear();
    levels_.clear();
    first_level_.clear();
    if (!trees.front()->choices) return true;
    for (const TreeSpec* tree : trees) {
        const std::vector<TreeChoices::Node>& nodes = tree->choices->nodes;
        first_level_.push_back(levels_.size());
        row_of_.assign(nodes.size(), 0);
        std::size_t at = 0;
        for (int level = 0; level <= tree->depth; ++level) {
            const std::size_t mask = values_.size();
            values_.resize(mask + numel(width_at(*tree, level), topk), 0);
            levels_.push_back({mask, values_.size()});
            int rows = 0, sibling = 0;
            for (; at < nodes.size() && nodes[at].depth == level + 1; ++at) {
                const TreeChoices::Node& node = nodes[at];
                const int above = node.parent < 0 ? 0 : row_of_[node.parent];
                const bool first_child = at == 0 || nodes[at - 1].parent != node.parent;
                sibling = first_child ? 0 : sibling + 1;
                // Samples are taken in order, whatever ranks the tree names: a skipped sample would never be
                // verified.
                const int cell = above * topk + (sampled ? sibling : node.rank);
                values_[mask + cell] = 1;
                if (!node.inner) continue;
                row_of_[at] = rows++;
                values_.push_back(cell);
            }
        }
    }
    return d_values_.upload(backend, values_);
}

void StaticLevels::set(kernels::BeamOp& op, int tree, int level) const {
    if (levels_.empty()) return;
    const Level& at = levels_[first_level_[tree] + level];
    op.static_mask = d_values_.as<std::int32_t>() + at.mask;
    op.static_next = d_values_.as<std::int32_t>() + at.next;
}

}  // namespace draftscope
