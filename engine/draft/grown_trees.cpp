#include "engine/draft/grown_trees.h"

#include <utility>

namespace draftscope {

Status GrownTrees::expand(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                          kernels::Device& device,
                          FunctionRef<std::vector<GrowingTree>(std::span<DraftJob>)> plan) {
    std::vector<DraftJob> drafting;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (jobs[i].tree.nodes <= 1) {
            jobs[i].rows_per_call.clear();
            jobs[i].out.reset(jobs[i].tokens.back());
            DS_TRY(jobs[i].out.finish());
            continue;
        }
        jobs[i].tree_index = static_cast<int>(places.size());
        places.push_back(i);
        drafting.push_back(std::move(jobs[i]));
    }
    if (drafting.empty()) return {};
    Status status = growth.check(context, drafting);
    if (status.ok()) status = device.submit([&] { return enqueue(context, drafting, growth, device, plan); });
    if (status.ok()) {
        growth.collect();
        spans_.record(context.phases);
        for (std::size_t i = 0; i < drafting.size() && status.ok(); ++i)
            status = step_.read_tree(static_cast<int>(i), drafting[i].out);
    }
    for (std::size_t i = 0; i < drafting.size(); ++i) jobs[places[i]] = std::move(drafting[i]);
    return status;
}

Status GrownTrees::enqueue(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                           kernels::Device& device,
                           FunctionRef<std::vector<GrowingTree>(std::span<DraftJob>)> plan) {
    std::vector<TreePlan> plans;
    for (const DraftJob& job : jobs) plans.push_back(TreeGrowth::plan(job.tree));
    if (!step_.place(device, plans))
        return failed("out of device memory for the drafts' trees; use a smaller batch or tree");
    std::vector<GrowingTree> trees = plan(jobs);
    if (!growth.prepare(context, trees))
        return failed("out of device memory for the drafts' levels; use a smaller batch or tree");
    spans_.begin(device);
    growth.begin(context, trees, spans_, step_);
    DS_TRY(growth.enqueue(context, trees, step_));
    step_.enqueue_download();
    return {};
}

}  // namespace draftscope
