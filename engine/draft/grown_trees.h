#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// Grows trees on a device without a target's pass, for replay and for drafts of other heads. Waits once.
class GrownTrees {
  public:
    /// Drafts into DraftJob::out. `plan` says where the roots' rows are, once memory is reserved. It runs
    /// with the device locked.
    Status expand(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                  kernels::Device& device, FunctionRef<std::vector<GrowingTree>(std::span<DraftJob>)> plan);

  private:
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                   kernels::Device& device, FunctionRef<std::vector<GrowingTree>(std::span<DraftJob>)> plan);

    TreeStep step_;
    DeviceSpans spans_;
};

}  // namespace draftscope
