#include "engine/decode/backend_step.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

/// Moves the jobs' trees to their rounds. Both keep their memory.
void take_trees(std::span<DraftJob> jobs, std::span<Round> rounds) {
    for (Round& round : rounds)
        if (round.job >= 0) std::swap(round.tree, jobs[round.job].out);
}

/// Returns whether the jobs' trees grow on the backend.
bool grow(std::span<const DraftJob> jobs) {
    return !jobs.empty() && !jobs.front().is_known;
}

}  // namespace

Status BackendStep::enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    enqueued_ = false;
    if (!jobs.empty()) DS_TRY(core_.drafter.begin(context, jobs));
    if (!grow(jobs)) take_trees(jobs, rounds);
    plan(context, jobs, rounds);
    const LogitsQuery query = queries_.query(rounds, step_.plan, grow(jobs));
    kernels::Backend& backend = context.backend;
    DS_TRY(check_query(backend, query));
    const std::lock_guard lock(backend.submit_mutex());
    DS_TRY(prepare(query, rounds));
    DS_TRY(draft(context, jobs, rounds));
    DS_TRY(verify(rounds));
    DS_TRY(accept(rounds));
    step_.results.enqueue(backend);
    enqueued_ = true;
    return {};
}

/// Lists the sizes of the step's trees.
void BackendStep::plan(const DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds) {
    RoundPlan& plan = step_.plan;
    plan.clear();
    plan.max_drafts = context.sampled != nullptr || core_.rule->needs().draft_uniforms ? 1 : 0;
    for (const Round& round : rounds) {
        if (round.job >= 0 && grow(jobs)) {
            DraftJob& job = jobs[round.job];
            job.tree_index = plan.count();
            plan.add(plan_tree(job.tree));
        } else {
            plan.add({round.tree.size(), round.tree.max_depth(), 1});
        }
        if (context.sampled != nullptr && round.job >= 0)
            plan.max_drafts = std::max(plan.max_drafts, jobs[round.job].tree.topk);
    }
}

/// Allocates the step's memory and uploads what is known before the drafts, so that a device waits for no
/// transfer between drafts and verification.
Status BackendStep::prepare(const LogitsQuery& query, std::span<const Round> rounds) {
    kernels::Backend& backend = core_.backend;
    DS_TRY(step_.begin(backend, "the step's trees"));
    const std::size_t rows = step_.layout.rows();
    const std::size_t d = core_.target.config().hidden, layers = core_.drafter.aux_layers().size();
    RoundArena& arena = step_.memory.backend;
    outputs_.hidden = arena.alloc<float>(rows * d);
    outputs_.aux = layers == 0 ? nullptr : arena.alloc<float>(rows * layers * d);
    if (!core_.logits.begin(backend, step_, query, core_.target.lm_head().n()))
        return step_.out_of_memory(fmt::format("{} rows of the target", rows));
    outputs_.logits = core_.logits.data();
    return core_.target.upload_layout(target_pass(rounds));
}

Status BackendStep::draft(DraftContext& context, std::span<DraftJob> jobs, std::span<const Round> rounds) {
    const bool watched = context.observer != nullptr && context.observer->observing();
    core_.sampled = core_.sampled || watched;
    step_.spans.begin(context.backend, watched, core_.sampled);
    if (grow(jobs)) DS_TRY(core_.drafter.enqueue(context, jobs, step_));
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        const int root = static_cast<int>(rounds[i].sequence->tokens.size()) - 1;
        if (rounds[i].job < 0 || !grow(jobs))
            step_.layout.upload_tree(step_.memory, static_cast<int>(i), rounds[i].tree, root);
    }
    return step_.check_memory("the step's trees");
}

/// Returns the target's pass over the trees, as far as their sizes are known.
TreePass BackendStep::target_pass(std::span<const Round> rounds) {
    sequences_.clear();
    for (std::size_t i = 0; i < rounds.size(); ++i)
        sequences_.push_back(
            {&rounds[i].sequence->cache, step_.layout.trees()[i].nodes, step_.plan.trees[i].levels});
    TreePass pass;
    pass.sequences = sequences_;
    pass.rows = step_.layout.arrays();
    pass.aux_layers = core_.drafter.aux_layers();
    pass.outputs = outputs_;
    pass.best = core_.logits.best_op();
    return pass;
}

Status BackendStep::verify(std::span<const Round> rounds) {
    DeviceSpans::Scope scope(step_.spans, core_.phases, Phase::verify, 0, step_.layout.rows(), 0);
    DS_ASSIGN(const std::uint64_t bytes, core_.target.enqueue(target_pass(rounds)));
    scope.add_bytes(bytes);
    return {};
}

/// Enqueues the acceptance of the trees' paths and compacts the keys and values of accepted nodes.
Status BackendStep::accept(std::span<const Round> rounds) {
    kernels::Backend& backend = core_.backend;
    DeviceSpans::Scope scope(step_.spans, core_.phases, Phase::accept, 0, step_.layout.rows(), 0);
    core_.logits.enqueue(step_);
    VerifyContext context{backend, step_, core_.logits};
    core_.rule->enqueue(context);
    DS_TRY(step_.check_memory("the choices of the target"));  // what follows reads the paths
    rule_count_ = context.requested_count;
    if (rule_count_ > 0) rule_index_ = step_.results.request(context.requested, rule_count_);
    core_.logits.enqueue_set_probabilities(step_);
    core_.logits.request(step_);
    const auto moves = step_.memory.host.list<kernels::CompactOp>(rounds.size());
    DS_TRY(step_.check_memory("the choices of the target"));
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        const int tree = static_cast<int>(i), nodes = step_.layout.trees()[i].nodes;
        moves[i] = rounds[i].sequence->cache.path_move(step_.layout.path(tree), step_.layout.path_count(tree),
                                                       std::min(step_.plan.width, nodes));
    }
    backend.compact(moves);
    return {};
}

Status BackendStep::finish(std::span<DraftJob> jobs, std::span<Round> rounds) {
    kernels::Backend& backend = core_.backend;
    {
        const std::lock_guard lock(backend.submit_mutex());
        if (!enqueued_) backend.join_side_stream();  // nothing may use the memory of a step that failed
        DS_TRY(backend.synchronize());
    }
    if (!enqueued_) return {};
    if (grow(jobs)) {
        DS_TRY(core_.drafter.collect(step_, jobs));
        take_trees(jobs, rounds);
    }
    step_.spans.record(core_.phases);
    core_.logits.collect(step_, core_.answers);
    const std::span<const std::int32_t> by_rule = step_.results.values(rule_index_, rule_count_);
    core_.answers.by_rule.assign(by_rule.begin(), by_rule.end());
    for (Round& round : rounds) round.sequence->device_rows = 0;
    return {};
}

Status BackendStep::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    sequence.cache.commit(count);
    if (round.job >= 0) core_.drafter.accepted(*sequence.drafter, path);
    kernels::Backend& backend = core_.backend;
    const std::lock_guard lock(backend.submit_mutex());
    const int width = core_.feature_width();
    sequence.new_slots = count;
    if (width == 0) return {};
    const std::size_t max_rows = core_.options.tree.levels() + 1;
    if (!sequence.device_features.reserve(backend, max_rows * width * sizeof(float)))
        return backend.out_of_memory(fmt::format("the features of {} slots", count));
    const float* features = core_.drafter.needs_hidden() ? outputs_.hidden : outputs_.aux;
    moves_.push_back({.from = features + numel(first_row(index), width),
                      .from_stride = width,
                      .rows = step_.layout.path(static_cast<int>(index)),
                      .count = count,
                      .cols = width,
                      .to = sequence.device_features.as<float>(),
                      .to_stride = width});
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
