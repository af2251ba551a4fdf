#include "engine/decode/backend_step.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_growth.h"
#include "kernels/elementwise.h"

namespace draftscope {
namespace {

constexpr std::string_view smaller = "use a smaller batch or tree";

/// Moves the jobs' trees to their rounds. Both keep their memory.
void take_trees(std::span<DraftJob> jobs, std::span<Round> rounds) {
    for (Round& round : rounds)
        if (round.job >= 0) std::swap(round.tree, jobs[round.job].out);
}

}  // namespace

/// Drafts trees with a drafter that runs on the host.
Status BackendStep::draft_on_host(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    DS_TRY(core_.drafter.extend_cache(context, jobs));
    DS_TRY(core_.drafter.expand(context, jobs));
    take_trees(jobs, rounds);
    return {};
}

/// Lists the sizes of the step's trees.
void BackendStep::plan(const DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds) {
    plans_.clear();
    const bool host = core_.exec.backend().is_host();
    int max_drafts = context.sampled != nullptr || (!host && core_.rule->needs().rejections) ? 1 : 0;
    for (const DraftJob& job : jobs)
        if (context.sampled != nullptr) max_drafts = std::max(max_drafts, job.tree.topk);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (grows(rounds[i])) {
            jobs[rounds[i].job].tree_index = static_cast<int>(i);
            plans_.push_back(TreeGrowth::plan(jobs[rounds[i].job].tree));
        } else {
            plans_.push_back({rounds[i].tree.size(), rounds[i].tree.max_depth()});
        }
        plans_.back().max_drafts = max_drafts;
    }
}

Status BackendStep::place() {
    kernels::Device& device = core_.exec.backend();
    if (step_.place(device, plans_)) return {};
    return device.out_of_memory("the step's trees", smaller);
}

/// Uploads the trees that do not grow on the backend, or all of them.
void BackendStep::upload_trees(std::span<const Round> rounds, bool all) {
    for (std::size_t i = 0; i < rounds.size(); ++i)
        if (all || !grows(rounds[i]))
            step_.upload_tree(static_cast<int>(i), rounds[i].tree,
                              static_cast<int>(rounds[i].sequence->tokens.size()) - 1);
}

Status BackendStep::enqueue_drafts(DraftContext& context, std::span<DraftJob> jobs,
                                   std::span<const Round> rounds) {
    kernels::Device& device = core_.exec.backend();
    spans_.begin(device, context.observer != nullptr && context.observer->observing());
    upload_trees(rounds, false);
    if (core_.drafter.grows_trees() && !jobs.empty())
        return core_.drafter.enqueue_draft(context, jobs, step_, spans_);
    if (!device.is_host() && core_.rule->needs().rejections && !step_.use_certain_drafts())
        return device.out_of_memory("the step's drafts", smaller);
    return {};
}

Status BackendStep::enqueue_verify(const TreesRequest& request) {
    DeviceSpans::Scope scope(spans_, core_.phases, Phase::verify, 0, step_.rows(), 0);
    DS_ASSIGN(const std::uint64_t bytes, core_.target.enqueue_trees(core_.exec, request, step_));
    scope.add_bytes(bytes);
    return {};
}

/// Reads the trees that grew, after their download.
Status BackendStep::collect_drafts(std::span<DraftJob> jobs, std::span<Round> rounds) {
    if (!core_.drafter.grows_trees() || jobs.empty()) return {};
    DS_TRY(core_.drafter.collect_draft(step_, jobs));
    take_trees(jobs, rounds);
    return {};
}

/// Places the trees again if candidates were missing, so that the target's pass has a row for each node only.
Status BackendStep::drop_missing_rows(std::span<const Round> rounds) {
    bool missing = false;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        missing = missing || rounds[i].tree.size() < plans_[i].nodes;
        plans_[i].nodes = rounds[i].tree.size();
        plans_[i].levels = rounds[i].tree.max_depth();
    }
    if (!missing) return {};
    DS_TRY(place());
    upload_trees(rounds, true);
    return {};
}

/// Enqueues the step and its downloads; on the CPU, the step is done then. The caller holds
/// Device::submit_mutex() and synchronizes.
Status BackendStep::enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                            TreesRequest& request, FunctionRef<void()> drafted) {
    const bool host = core_.exec.backend().is_host();
    DS_TRY(place());
    DS_TRY(enqueue_drafts(context, jobs, rounds));
    if (host) {
        step_.enqueue_download();
        DS_TRY(collect_drafts(jobs, rounds));
        DS_TRY(drop_missing_rows(rounds));
        drafted();
        request.query = queries_.query(rounds);
    }
    DS_TRY(enqueue_verify(request));
    if (!host) step_.enqueue_download();
    return {};
}

Status BackendStep::run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                        FunctionRef<void()> drafted) {
    const bool grown = core_.drafter.grows_trees() && !jobs.empty();
    if (grown)
        DS_TRY(core_.drafter.check_draft(context, jobs));
    else if (!jobs.empty())
        DS_TRY(draft_on_host(context, jobs, rounds));
    kernels::Device& device = core_.exec.backend();
    const bool host = device.is_host();
    plan(context, jobs, rounds);
    caches_.clear();
    for (Round& round : rounds) caches_.push_back(&round.sequence->cache);
    TreesRequest request;
    request.caches = caches_;
    request.aux_layers = core_.drafter.aux_layers();
    accepted_on_device_ = !host && queries_.accepts_on_device();
    request.accept = accepted_on_device_;
    if (!host) {
        request.query = queries_.tree_query(rounds, plans_, grown);
        if (!can_answer(*request.query))
            return bad_input("a device verifies vocabularies of at most {} tokens, the target has {}",
                             kernels::max_sample_columns, request.query->vocab);
    }
    DS_TRY(device.submit([&] { return enqueue(context, jobs, rounds, request, drafted); }));
    if (!host) DS_TRY(collect_drafts(jobs, rounds));
    spans_.record(core_.phases);
    core_.target.collect_trees(step_, core_.forward);
    if (!host) drafted();
    for (Round& round : rounds) round.sequence->device_rows = 0;
    return {};
}

Status BackendStep::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    if (accepted_on_device_)
        sequence.cache.commit(count);
    else
        sequence.cache.commit_path(path);
    kernels::Device& device = core_.exec.backend();
    const std::lock_guard lock(device.submit_mutex());
    const int width = core_.feature_width();
    sequence.new_slots = count;
    if (!accepted_on_device_) step_.set_path(static_cast<int>(index), path);
    if (width == 0) return {};
    const std::size_t row_bytes = width * sizeof(float);
    const std::size_t max_rows = core_.options.tree.levels() + 1;
    if (!sequence.device_features.reserve(device, max_rows * row_bytes))
        return device.out_of_memory(fmt::format("the features of {} slots", count));
    const float* features = core_.target.device_features(core_.drafter.needs_hidden()) +
                            static_cast<std::ptrdiff_t>(step_.trees()[index].first_row) * width;
    moves_.push_back({features, width, step_.device_path(static_cast<int>(index)), count, width,
                      sequence.device_features.as<float>(), width});
    sequence.device_rows = count;
    sequence.hidden.clear();
    sequence.aux.clear();
    return {};
}

void BackendStep::end_commits() {
    kernels::Device& device = core_.exec.backend();
    const std::lock_guard lock(device.submit_mutex());
    device.copy_rows(moves_);
    // A drafter was trained with the target's 16-bit features. A GPU rounds them when the drafter reads them.
    if (device.is_host())
        for (const kernels::CopyRowsOp& move : moves_)
            kernels::cast_to_dtype(core_.exec, Rows<float>(move.to, move.count, move.cols));
    moves_.clear();
}

}  // namespace draftscope
