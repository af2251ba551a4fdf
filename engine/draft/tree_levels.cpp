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

TreePlan plan_tree(const TreeSpec& tree) {
    if (tree.nodes <= 1) return {};
    const int candidates = tree.topk + tree.depth * tree.topk * tree.topk;
    const int nodes = tree.choices ? tree.nodes : std::min(tree.nodes - 1, candidates) + 1;
    return {nodes, tree.levels(), tree.levels() + 1};
}

Status check_ops(const kernels::BackendLimits& limits, const TreeSpec& tree, int topk) {
    const int widest = std::max(topk, max_width(tree)), candidates = total_width(tree) * topk;
    if (!limits.can_grow(widest))
        return bad_input("--tree: a device grows at most {} candidates and nodes per level, found {}",
                         kernels::max_topk, widest);
    if (!limits.can_rerank(candidates, std::min(tree.nodes, candidates + 1)))
        return bad_input(
            "--tree: {} candidates, but a device re-ranks at most {}; use a smaller depth or topk",
            candidates, kernels::max_candidates);
    return {};
}

/// Nodes are ordered by level and then by path, like the candidates of their parents.
void StaticLevels::upload(kernels::Backend& backend, RoundArena& arena, std::span<const GrowingTree> trees,
                          int topk, bool sampled) {
    values_.clear();
    levels_.clear();
    first_level_.clear();
    if (!trees.front().job->tree.choices) return;
    for (const GrowingTree& growing : trees) {
        const TreeSpec& tree = growing.job->tree;
        const std::vector<TreeChoices::Node>& nodes = tree.choices->nodes;
        first_level_.push_back(levels_.size());
        row_of_.assign(nodes.size(), 0);
        std::size_t at = 0;
        for (int level = 0; level <= tree.depth; ++level) {
            const std::size_t mask = values_.size();
            values_.resize(mask + numel(width_at(tree, level), topk), 0);
            levels_.push_back({mask, values_.size()});
            int rows = 0, sibling = 0;
            for (; at < nodes.size() && nodes[at].depth == level + 1; ++at) {
                const TreeChoices::Node& node = nodes[at];
                const int above = node.parent < 0 ? 0 : row_of_[node.parent];
                const bool first_child = at == 0 || nodes[at - 1].parent != node.parent;
                sibling = first_child ? 0 : sibling + 1;
                // Samples are taken in order, whatever ranks the tree names: a skipped sample would never be
                // verified.
                const int index = above * topk + (sampled ? sibling : node.rank);
                values_[mask + index] = 1;
                if (!node.inner) continue;
                row_of_[at] = rows++;
                values_.push_back(index);
            }
        }
    }
    placed_ = arena.alloc<std::int32_t>(values_.size());
    if (placed_ != nullptr) backend.upload(placed_, values_.data(), values_.size() * sizeof(values_[0]));
}

void StaticLevels::set(kernels::BeamOp& op, int tree, int level) const {
    if (levels_.empty()) return;
    const Level& at = levels_[first_level_[tree] + level];
    op.static_mask = placed_ + at.mask;
    op.static_next = placed_ + at.next;
}

}  // namespace draftscope
