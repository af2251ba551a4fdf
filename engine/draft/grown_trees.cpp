#include "engine/draft/grown_trees.h"

#include <algorithm>
#include <utility>

namespace draftscope {

Status GrownTrees::expand(DraftContext& context, std::span<DraftJob> jobs, TreeGrowth& growth,
                          kernels::Backend& backend, Plan plan) {
    drafting_.clear();
    places_.clear();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].rows_per_call.clear();
        if (jobs[i].tree.nodes <= 1) {
            jobs[i].out.reset(jobs[i].tokens.back());
            DS_TRY(jobs[i].out.finish());
            continue;
        }
        jobs[i].tree_index = static_cast<int>(places_.size());
        places_.push_back(i);
    }
    if (places_.empty()) return {};
    for (const std::size_t i : places_) drafting_.push_back(std::move(jobs[i]));
    Status status = growth.check(context, drafting_);
    if (status.ok()) status = backend.submit([&] { return enqueue(context, growth, backend, plan); });
    if (status.ok()) {
        status = growth.collect(step_, drafting_);
        spans_.record(context.phases);
    }
    for (std::size_t i = 0; i < drafting_.size(); ++i) jobs[places_[i]] = std::move(drafting_[i]);
    return status;
}

Status GrownTrees::enqueue(DraftContext& context, TreeGrowth& growth, kernels::Backend& backend, Plan plan) {
    plans_.clear();
    for (const DraftJob& job : drafting_) plans_.push_back(TreeGrowth::plan(job.tree));
    if (!step_.place(backend, plans_))
        return backend.out_of_memory("the drafts' trees", "use a smaller batch or tree");
    trees_.clear();
    plan(drafting_, trees_);
    if (!growth.prepare(context, trees_))
        return backend.out_of_memory("the drafts' levels", "use a smaller batch or tree");
    spans_.begin(backend);
    growth.begin(context, trees_, spans_, step_);
    DS_TRY(growth.enqueue(context, trees_, step_));
    step_.enqueue_download();
    return {};
}

}  // namespace draftscope
