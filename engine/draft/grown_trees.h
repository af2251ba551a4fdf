#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// Grows trees without a target's pass: on the CPU, for replay and for drafts of other heads. Waits once.
class GrownTrees {
  public:
    using Plan = FunctionRef<void(std::span<DraftJob>, std::vector<GrowingTree>&)>;
    /// Drafts into DraftJob::out. `plan` lists the trees and says where the roots' rows are, once memory is
    /// reserved. It runs with the device locked.
    Status expand(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                  kernels::Backend& backend, Plan plan);

  private:
    Status enqueue(DraftContext& context, TreeGrowth& growth, kernels::Backend& backend, Plan plan);

    std::vector<DraftJob> drafting_;   ///< the jobs whose trees have drafts
    std::vector<std::size_t> places_;  ///< index of each among all jobs
    std::vector<TreePlan> plans_;
    std::vector<GrowingTree> trees_;
    TreeStep step_;
    DeviceSpans spans_;
};

}  // namespace draftscope
