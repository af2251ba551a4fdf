#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/draft/growing_tree.h"

namespace draftscope {

/// Returns the number of nodes that a tree drafts from at a level, if no candidate is missing. Level 0 has
/// the root.
int width_at(const TreeSpec& tree, int level);
/// Returns the largest width of any level.
int max_width(const TreeSpec& tree);
/// Returns the sum of the widths of all levels.
int total_width(const TreeSpec& tree);
/// Returns the plan of a tree that grows on the backend; a tree of one node does not grow.
TreePlan plan_tree(const TreeSpec& tree);
/// Checks a tree against the limits of a backend's ops. Each row has `topk` candidates.
Status check_ops(const kernels::BackendLimits& limits, const TreeSpec& tree, int topk);

/// The candidates that are nodes of static trees, in device memory.
class StaticLevels {
  public:
    /// Lists and uploads them for rows of `topk` candidates. The trees are all static or none is.
    void upload(kernels::Backend& backend, RoundArena& arena, std::span<const GrowingTree> trees, int topk,
                bool sampled);
    /// Sets BeamOp::static_mask and static_next to those of a tree's level; no effect without static trees.
    void set(kernels::BeamOp& op, int tree, int level) const;

  private:
    struct Level {
        std::size_t mask, next;  ///< indices in values_
    };
    std::vector<std::int32_t> values_;  ///< by tree and level: BeamOp::static_mask, then static_next
    std::vector<Level> levels_;
    std::vector<std::size_t> first_level_;  ///< [trees] index in levels_
    std::vector<int> row_of_;               ///< index of each node among the rows of its level
    std::int32_t* placed_ = nullptr;        ///< values_ in the backend's memory
};

}  // namespace draftscope
