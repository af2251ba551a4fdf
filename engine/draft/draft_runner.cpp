#include <utility>

#include "engine/draft/drafter.h"
#include "engine/draft/tree_levels.h"

namespace draftscope {

void DraftRunner::add_trees(const DraftContext& context, std::span<DraftJob> jobs, RoundPlan& plan) {
    for (DraftJob& job : jobs) {
        job.tree_index = plan.count();
        if (job.is_known)
            plan.add({job.out.size(), job.out.max_depth(), 1 + job.out.max_depth()});
        else
            plan.add(plan_tree(job.tree));
        if (context.sampled != nullptr) plan.max_drafts = std::max(plan.max_drafts, job.tree.topk);
    }
}

Status DraftRunner::upload_roots(std::span<const DraftJob> jobs, RoundStep& step) {
    for (const DraftJob& job : jobs) {
        if (job.is_known || job.tree.nodes > 1) continue;
        DraftTree root = DraftTree::with_root(job.tokens.back());
        DS_TRY(root.finish());
        step.layout.upload_tree(step.memory, job.tree_index, root, static_cast<int>(job.tokens.size()) - 1);
    }
    return {};
}

Status DraftRunner::draft(DraftContext& context, std::span<DraftJob> jobs) {
    if (jobs.empty()) return {};
    for (DraftJob& job : jobs) job.is_known = false;
    DS_TRY(drafter_.begin(context, jobs));
    kernels::Backend& backend = context.backend;
    RoundPlan& plan = step_.plan;
    plan.clear();
    add_trees(context, jobs, plan);
    plan.draft_uniforms.assign(plan.trees.size() * plan.width * plan.max_drafts,
                               0.0);  // no draft is accepted
    const Status status = backend.submit([&]() -> Status {
        DS_TRY(step_.begin(backend, "the drafts' trees"));
        step_.spans.begin(backend);
        DS_TRY(drafter_.enqueue(context, jobs, step_));
        DS_TRY(upload_roots(jobs, step_));
        step_.results.enqueue(backend);
        return {};
    });
    DS_TRY(status);
    DS_TRY(drafter_.collect(step_, jobs));
    step_.spans.record(context.phases);
    for (DraftJob& job : jobs) job.forget_slots();
    return {};
}

}  // namespace draftscope
