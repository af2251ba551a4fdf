#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/tree/draft_tree.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Returns the number of nodes that a tree drafts from at a level, if no candidate is missing. Level 0 has
/// the root.
int width_at(const TreeSpec& tree, int level);
/// Returns the largest width of any level.
int max_width(const TreeSpec& tree);
/// Returns the sum of the widths of all levels.
int total_width(const TreeSpec& tree);
/// Checks a tree against the limits of a device's ops. Each row has `topk` candidates.
Status check_ops(const TreeSpec& tree, int topk);

/// The candidates that are nodes of static trees, in device memory.
class StaticLevels {
  public:
    /// Lists and uploads them for rows of `topk` candidates. The trees are all static or none is. Returns
    /// false if memory runs out.
    bool upload(kernels::Backend& backend, std::span<const TreeSpec* const> trees, int topk, bool sampled);
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
    kernels::DeviceArray<std::int32_t> d_values_;
};

}  // namespace draftscope
