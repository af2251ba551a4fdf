#include "engine/decode/device_step.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// Drafts trees with a drafter that runs on the host.
Status DeviceStep::draft_on_host(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    DS_TRY(core_.drafter.extend_cache(context, jobs));
    DS_TRY(core_.drafter.expand(context, jobs));
    for (Round& round : rounds)
        if (round.job >= 0) std::swap(round.tree, jobs[round.job].out);
    return {};
}

std::vector<TreePlan> DeviceStep::plan(const DraftContext& context, std::span<DraftJob> jobs,
                                       std::span<const Round> rounds) const {
    std::vector<TreePlan> plans;
    int max_drafts = context.sampled != nullptr || core_.rule->needs().rejections ? 1 : 0;
    for (const DraftJob& job : jobs)
        if (context.sampled != nullptr) max_drafts = std::max(max_drafts, job.tree.topk);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (grows(rounds[i])) {
            jobs[rounds[i].job].tree_index = static_cast<int>(i);
            plans.push_back(TreeGrowth::plan(jobs[rounds[i].job].tree));
        } else {
            plans.push_back({rounds[i].tree.size(), rounds[i].tree.max_depth()});
        }
        plans.back().max_drafts = max_drafts;
    }
    return plans;
}

/// Enqueues a whole step and its downloads. The caller holds Device::submit_mutex() and synchronizes.
Status DeviceStep::enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds,
                           const TreesRequest& request) {
    spans_.begin(*core_.exec.device(), context.observer != nullptr && context.observer->observing());
    for (std::size_t i = 0; i < rounds.size(); ++i)
        if (!grows(rounds[i]))
            step_.upload_tree(static_cast<int>(i), rounds[i].tree,
                              static_cast<int>(rounds[i].sequence->tokens.size()) - 1);
    if (core_.drafter.drafts_on_device() && !jobs.empty()) {
        DS_TRY(core_.drafter.enqueue_draft(context, jobs, step_, spans_));
    } else if (core_.rule->needs().rejections && !step_.use_certain_drafts()) {
        return failed("out of device memory for the step's drafts; use a smaller batch or tree");
    }
    {
        DeviceSpans::Scope scope(spans_, core_.phases, Phase::verify, 0, step_.rows(), 0);
        DS_ASSIGN(const std::uint64_t bytes, core_.target.enqueue_trees(request, step_));
        scope.add_bytes(bytes);
    }
    step_.enqueue_download();
    return {};
}

Status DeviceStep::run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    const bool grown = core_.drafter.drafts_on_device() && !jobs.empty();
    if (grown)
        DS_TRY(core_.drafter.check_on_device(context, jobs));
    else if (!jobs.empty())
        DS_TRY(draft_on_host(context, jobs, rounds));
    kernels::Device& device = *core_.exec.device();
    std::vector<TreePlan> plans = plan(context, jobs, rounds);
    std::vector<KvCache*> caches;
    for (Round& round : rounds) caches.push_back(&round.sequence->cache);
    TreesRequest request;
    request.caches = caches;
    request.aux_layers = core_.drafter.aux_layers();
    request.query = queries_.tree_query(rounds, plans, grown);
    if (!can_answer(*request.query))
        return bad_input("a device verifies vocabularies of at most {} tokens, the target has {}",
                         kernels::max_sample_columns, request.query->vocab);
    request.accept = accepted_on_device_ = queries_.accepts_on_device();
    DS_TRY(device.submit([&]() -> Status {
        if (!step_.place(device, plans))
            return failed("out of device memory for the step's trees; use a smaller batch or tree");
        return enqueue(context, jobs, rounds, request);
    }));
    if (grown) core_.drafter.collect_draft();
    spans_.record(core_.phases);
    core_.target.collect_trees(step_, core_.forward);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (grows(rounds[i])) DS_TRY(step_.read_tree(static_cast<int>(i), rounds[i].tree));
        rounds[i].sequence->device_rows = 0;
    }
    return {};
}

Status DeviceStep::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    if (accepted_on_device_)
        sequence.cache.commit(count);
    else
        sequence.cache.commit_path(path);
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    const int width = core_.feature_width();
    sequence.new_slots = count;
    if (!accepted_on_device_) step_.set_path(static_cast<int>(index), path);
    if (width == 0) return {};
    const std::size_t row_bytes = width * sizeof(float);
    if (!sequence.device_features.reserve(device, numel(step_.rows_on_device().width, row_bytes)))
        return failed("out of device memory for the features of {} slots", count);
    const float* features = core_.target.device_features(core_.drafter.needs_hidden()) +
                            static_cast<std::ptrdiff_t>(step_.trees()[index].first_row) * width;
    moves_.push_back({features, width, step_.device_path(static_cast<int>(index)), count, width,
                      sequence.device_features.as<float>(), width});
    sequence.device_rows = count;
    sequence.hidden.clear();
    sequence.aux.clear();
    return {};
}

void DeviceStep::end_commits() {
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    device.copy_rows(moves_);
    moves_.clear();
}

}  // namespace draftscope
