#include "engine/decode/rounds_there.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// Drafts trees with a drafter that runs on the host.
Status RoundsThere::draft_on_host(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    DS_TRY(core_.drafter.extend_cache(context, jobs));
    DS_TRY(core_.drafter.expand(context, jobs));
    for (Round& round : rounds)
        if (round.job >= 0) std::swap(round.tree, jobs[round.job].out);
    return {};
}

std::vector<TreePlan> RoundsThere::plan(const DraftContext& context, std::span<DraftJob> jobs,
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
        plans.back().most_drafts = max_drafts;
    }
    return plans;
}

/// Enqueues a whole step and its downloads. The caller holds Device::submit_mutex() and synchronizes.
Status RoundsThere::ask(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds,
                        const TreesRequest& request) {
    spans_.begin(*core_.exec.device(), context.observer != nullptr && context.observer->observing());
    for (std::size_t i = 0; i < rounds.size(); ++i)
        if (!grows(rounds[i]))
            step_.upload_tree(static_cast<int>(i), rounds[i].tree,
                              static_cast<int>(rounds[i].sequence->tokens.size()) - 1);
    if (core_.drafter.drafts_there() && !jobs.empty()) {
        DS_TRY(core_.drafter.draft_there(context, jobs, step_, spans_));
    } else if (core_.rule->needs().rejections && !step_.use_certain_drafts()) {
        return failed("out of device memory for the step's drafts; use a smaller batch or tree");
    }
    {
        DeviceSpans::Scope scope(spans_, core_.phases, Phase::verify, 0, step_.rows(), 0);
        DS_ASSIGN(const std::uint64_t bytes, core_.target.ask_trees(request, step_));
        scope.add_bytes(bytes);
    }
    step_.ask_download();
    return {};
}

Status RoundsThere::run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    const bool grown = core_.drafter.drafts_there() && !jobs.empty();
    if (grown)
        DS_TRY(core_.drafter.check_there(context, jobs));
    else if (!jobs.empty())
        DS_TRY(draft_on_host(context, jobs, rounds));
    kernels::Device& device = *core_.exec.device();
    std::vector<TreePlan> plans = plan(context, jobs, rounds);
    std::vector<KvCache*> caches;
    for (Round& round : rounds) caches.push_back(&round.sequence->cache);
    TreesRequest request;
    request.caches = caches;
    request.aux_layers = core_.drafter.aux_layers();
    request.question = judged_.ask_trees(rounds, plans, grown);
    if (!can_answer(*request.question))
        return bad_input("a device verifies vocabularies of at most {} tokens, the target has {}",
                         kernels::max_sample_columns, request.question->vocab);
    request.accept = accepted_there_ = judged_.accepts_there();
    {
        const std::lock_guard lock(device.submit_mutex());
        if (!step_.place(device, plans))
            return failed("out of device memory for the step's trees; use a smaller batch or tree");
        const Status asked = ask(context, jobs, rounds, request);
        // Also after an error, because downloads enqueued before it still write to host memory.
        const Status finished = device.synchronize();
        DS_TRY(asked);
        DS_TRY(finished);
    }
    if (grown) core_.drafter.drafted_there();
    spans_.record(core_.phases);
    core_.target.collect_trees(step_, core_.forward);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (grows(rounds[i])) DS_TRY(step_.read_tree(static_cast<int>(i), rounds[i].tree));
        rounds[i].sequence->rows_there = 0;
    }
    return {};
}

Status RoundsThere::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    if (accepted_there_)
        sequence.cache.commit(count);
    else
        sequence.cache.commit_path(path);
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    const int width = core_.feature_width();
    sequence.new_slots = count;
    if (!accepted_there_) step_.set_path(static_cast<int>(index), path);
    if (width == 0) return {};
    const std::size_t row_bytes = width * sizeof(float);
    if (!sequence.features_there.reserve(device, numel(step_.there().width, row_bytes)))
        return failed("out of device memory for the features of {} slots", count);
    const float* features = core_.target.features_there(core_.drafter.needs_hidden()) +
                            static_cast<std::ptrdiff_t>(step_.trees()[index].first_row) * width;
    moves_.push_back({features, width, step_.path_there(static_cast<int>(index)), count, width,
                      sequence.features_there.as<float>(), width});
    sequence.rows_there = count;
    sequence.hidden.clear();
    sequence.aux.clear();
    return {};
}

void RoundsThere::end_commits() {
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    device.copy_rows(moves_);
    moves_.clear();
}

}  // namespace draftscope
