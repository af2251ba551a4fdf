#include "engine/decode/backend_step.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_growth.h"
#include "kernels/host_rows.h"

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
    int max_drafts = context.sampled != nullptr || core_.rule->needs().rejections ? 1 : 0;
    for (const DraftJob& job : jobs)
        if (context.sampled != nullptr) max_drafts = std::max(max_drafts, job.tree.topk);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (grows(rounds[i])) {
            jobs[rounds[i].job].tree_index = static_cast<int>(i);
            const TreePlan shape = TreeGrowth::plan(jobs[rounds[i].job].tree);
            plans_.add().reset(shape.nodes, shape.levels);
        } else {
            plans_.add().reset(rounds[i].tree.size(), rounds[i].tree.max_depth());
        }
        plans_[i].max_drafts = max_drafts;
    }
}

Status BackendStep::place() {
    kernels::Backend& backend = core_.backend;
    if (step_.place(backend, plans())) return {};
    return backend.out_of_memory("the step's trees", smaller);
}

/// Uploads the sets of tokens that the rounds' heads can propose. On the CPU they may depend on the drafts.
Status BackendStep::place_sets(std::span<const Round> rounds) {
    queries_.list_sets(rounds, plans());
    if (step_.place_sets(plans())) return {};
    return core_.backend.out_of_memory("the step's token sets", smaller);
}

void BackendStep::upload_tree(std::span<const Round> rounds, std::size_t index,
                              std::span<const std::int32_t> sampled_rows) {
    step_.upload_tree(static_cast<int>(index), rounds[index].tree,
                      static_cast<int>(rounds[index].sequence->tokens.size()) - 1, sampled_rows);
}

/// Uploads the trees that do not grow on the backend.
void BackendStep::upload_trees(std::span<const Round> rounds) {
    for (std::size_t i = 0; i < rounds.size(); ++i)
        if (!grows(rounds[i])) upload_tree(rounds, i, {});
}

Status BackendStep::enqueue_drafts(DraftContext& context, std::span<DraftJob> jobs,
                                   std::span<const Round> rounds) {
    kernels::Backend& backend = core_.backend;
    const bool watched = context.observer != nullptr && context.observer->observing();
    core_.sampled = core_.sampled || watched;
    spans_.begin(backend, watched, core_.sampled);
    upload_trees(rounds);
    if (core_.drafter.grows_trees() && !jobs.empty())
        return core_.drafter.enqueue_draft(context, jobs, step_, spans_);
    if (core_.rule->needs().rejections && !step_.use_certain_drafts())
        return backend.out_of_memory("the step's drafts", smaller);
    return {};
}

Status BackendStep::enqueue_verify(const TreesRequest& request) {
    {
        DeviceSpans::Scope scope(spans_, core_.phases, Phase::verify, 0, step_.rows(), 0);
        DS_ASSIGN(const std::uint64_t bytes, core_.target.enqueue_trees(request, step_));
        scope.add_bytes(bytes);
    }
    DeviceSpans::Scope scope(spans_, core_.phases, Phase::accept, 0, step_.rows(), 0);
    return core_.target.enqueue_answers(request, step_);
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
    const std::int32_t* sampled = step_.rows_on_device().sampled_rows;
    sampled_rows_.clear();
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        TreePlan& plan = plans_[i];
        missing = missing || rounds[i].tree.size() < plan.nodes;
        plan.nodes = rounds[i].tree.size();
        plan.levels = rounds[i].tree.max_depth();
        if (!plan.uniforms.empty()) plan.uniforms.resize(static_cast<std::size_t>(plan.levels) + 1);
        plan.draft_uniforms.resize(numel(plan.levels + 1, plan.max_drafts));
        plan.max_path = std::min(plan.max_path, plan.levels + 1);
        if (sampled != nullptr)
            sampled_rows_.insert(sampled_rows_.end(), sampled + step_.trees()[i].first_row,
                                 sampled + step_.trees()[i].first_row + plan.nodes);
    }
    if (!missing) return {};
    DS_TRY(place());
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        std::span<const std::int32_t> rows = sampled_rows_;
        if (!rows.empty()) rows = rows.subspan(step_.trees()[i].first_row, plans_[i].nodes);
        upload_tree(rounds, i, rows);
    }
    return {};
}

/// Enqueues the step and its downloads; on the CPU, the step is done then. The caller holds
/// Backend::submit_mutex().
Status BackendStep::enqueue_step(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                                 TreesRequest& request, FunctionRef<void()> drafted) {
    const bool host = core_.backend.is_host();
    DS_TRY(place());
    if (!host) {  // no upload between the drafts and the target's pass
        DS_TRY(place_sets(rounds));
        DS_TRY(core_.target.upload_tree_layout(request, step_));
    }
    DS_TRY(enqueue_drafts(context, jobs, rounds));
    if (host) {
        step_.enqueue_download();
        DS_TRY(collect_drafts(jobs, rounds));
        DS_TRY(drop_missing_rows(rounds));
        drafted();
        DS_TRY(place_sets(rounds));
    }
    DS_TRY(enqueue_verify(request));
    step_.enqueue_download();
    return {};
}

Status BackendStep::enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds,
                            FunctionRef<void()> drafted) {
    enqueued_ = false;
    const bool grown = core_.drafter.grows_trees() && !jobs.empty();
    if (grown)
        DS_TRY(core_.drafter.check_draft(context, jobs));
    else if (!jobs.empty())
        DS_TRY(draft_on_host(context, jobs, rounds));
    kernels::Backend& backend = core_.backend;
    plan(context, jobs, rounds);
    caches_.clear();
    for (Round& round : rounds) caches_.push_back(&round.sequence->cache);
    TreesRequest request;
    request.caches = caches_;
    request.aux_layers = core_.drafter.aux_layers();
    request.query = queries_.query(rounds, plans(), grown);
    if (!backend.is_host() && !can_answer(request.query))
        return bad_input("a device verifies vocabularies of at most {} tokens, the target has {}",
                         kernels::max_sample_columns, request.query.vocab);
    const std::lock_guard lock(backend.submit_mutex());
    DS_TRY(enqueue_step(context, jobs, rounds, request, drafted));
    enqueued_ = true;
    return {};
}

Status BackendStep::finish(std::span<DraftJob> jobs, std::span<Round> rounds, FunctionRef<void()> drafted) {
    kernels::Backend& backend = core_.backend;
    {
        const std::lock_guard lock(backend.submit_mutex());
        DS_TRY(backend.synchronize());
    }
    if (!enqueued_) return {};
    if (!backend.is_host()) DS_TRY(collect_drafts(jobs, rounds));
    spans_.record(core_.phases);
    core_.target.collect_trees(step_, core_.forward);
    if (!backend.is_host()) drafted();
    for (Round& round : rounds) round.sequence->device_rows = 0;
    return {};
}

Status BackendStep::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    sequence.cache.commit(count);
    kernels::Backend& backend = core_.backend;
    const std::lock_guard lock(backend.submit_mutex());
    const int width = core_.feature_width();
    sequence.new_slots = count;
    if (width == 0) return {};
    const std::size_t row_bytes = width * sizeof(float);
    const std::size_t max_rows = core_.options.tree.levels() + 1;
    if (!sequence.device_features.reserve(backend, max_rows * row_bytes))
        return backend.out_of_memory(fmt::format("the features of {} slots", count));
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
    kernels::Backend& backend = core_.backend;
    const std::lock_guard lock(backend.submit_mutex());
    backend.copy_rows(moves_);
    // A drafter was trained with the target's 16-bit features. A GPU rounds them when the drafter reads them.
    if (backend.is_host())
        for (const kernels::CopyRowsOp& move : moves_)
            kernels::cast_to_dtype(core_.backend, Rows<float>(move.to, move.count, move.cols));
    moves_.clear();
}

}  // namespace draftscope
