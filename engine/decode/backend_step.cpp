#include "engine/decode/backend_step.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"
#include "engine/heads/head_call.h"
#include "engine/sequence/round_rows.h"
#include "engine/shadow/shadow_evaluator.h"
#include "engine/verify/verification.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

/// Returns whether the round's tree grows on the backend.
bool grows(const Round& round, std::span<const DraftJob> jobs) {
    return round.job >= 0 && !jobs[round.job].is_known;
}

/// Moves the trees of the jobs that are known, or of the others, to their rounds. Both keep their memory.
void take_trees(std::span<DraftJob> jobs, std::span<Round> rounds, bool known) {
    for (Round& round : rounds)
        if (round.job >= 0 && jobs[round.job].is_known == known) std::swap(round.tree, jobs[round.job].out);
}

}  // namespace

BackendStep::BackendStep(DecodeContext& core) : core_(core) {
    if (core.records_nodes()) best_ = num_top_tokens;
    if (core.head != nullptr) best_ = std::max(best_, core.head->target_tokens().at_verified);
    if (can_evaluate_shadows(core)) best_ = std::max(best_, best_tokens_for(core.options.shadows));
    best_ = std::min(best_, core.vocab);
}

Status BackendStep::enqueue(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    enqueued_ = false;
    if (!jobs.empty()) DS_TRY(core_.drafter.begin(context, jobs));
    take_trees(jobs, rounds, true);
    plan(context, jobs, rounds);
    // A pair's text drafter may draft more nodes than the tree of the options has.
    for (const Round& round : rounds)
        round.sequence->cache.ensure_free(step_.plan.trees[round.tree_index].nodes);
    const bool any_grows = std::ranges::any_of(jobs, [](const DraftJob& job) { return !job.is_known; });
    const LogitsQuery query = logits_query(rounds, any_grows);
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
        if (grows(round, jobs)) {
            DraftJob& job = jobs[round.job];
            job.tree_index = round.tree_index;
            plan.add(plan_tree(job.tree));
        } else {
            plan.add({round.tree.size(), round.tree.max_depth(), 1});
        }
        if (context.sampled != nullptr && round.job >= 0)
            plan.max_drafts = std::max(plan.max_drafts, jobs[round.job].tree.topk);
    }
}

/// Returns what acceptance, recorder and heads read of the target's logits, so that those stay on the device.
/// Adds random numbers, limits of paths and token sets to the plan. `grown`: trees grow on the backend, where
/// the head may make their token sets.
LogitsQuery BackendStep::logits_query(std::span<const Round> rounds, bool grown) {
    RoundPlan& plan = step_.plan;
    const Sampling& sampling = core_.options.sampling;
    const AcceptanceRule& rule = *core_.rule;
    LogitsQuery query = make_query(rule, sampling, core_.vocab);
    const bool any_drafts =
        std::ranges::any_of(plan.trees, [](const TreePlan& tree) { return tree.nodes > 1; });
    query.best = std::max(query.best, best_);
    query.ranks = core_.records_nodes();
    query.drafts = any_drafts && (query.ranks || query.drafts);
    // Simulated acceptance measures the round time of any rule, and shadow heads read complete rows.
    query.complete = rule.info().is_simulated() || !core_.options.shadows.empty();
    positions_.clear();
    for (const Round& round : rounds)
        positions_.push_back(
            {round.sequence->number, static_cast<std::int64_t>(round.sequence->tokens.size())});
    add_acceptance_inputs(rule, sampling, positions_, plan);
    if (!query.ranks || core_.drafting_head() == nullptr) return query;
    plan.sets_by_head = grown && core_.head->shape(0, 1).set > 0;
    if (plan.sets_by_head) return query;
    plan.sets.assign(plan.trees.size() * plan.width, nullptr);
    for (const Round& round : rounds)
        for (int depth = 0; depth <= plan.trees[round.tree_index].levels; ++depth)
            plan.sets[plan.at(round.tree_index, depth)] = round.sequence->active->restricted_ids(depth);
    if (std::ranges::all_of(plan.sets, [](const auto* set) { return set == nullptr; })) plan.sets.clear();
    return query;
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
    const bool observed = context.observer != nullptr && context.observer->observing();
    core_.sampled = core_.sampled || observed;
    step_.spans.begin(context.backend, observed, core_.sampled);
    if (!jobs.empty()) DS_TRY(core_.drafter.enqueue(context, jobs, step_));
    DS_TRY(DraftRunner::upload_roots(jobs, step_));
    for (const Round& round : rounds)
        if (!grows(round, jobs))
            step_.layout.upload_tree(step_.memory, round.tree_index, round.tree, round.root());
    return step_.check_memory("the step's trees");
}

/// Returns the target's pass over the trees, as far as their sizes are known.
TreePass BackendStep::target_pass(std::span<const Round> rounds) {
    trees_.clear();
    for (const Round& round : rounds)
        trees_.push_back({&round.sequence->cache, step_.layout.trees()[round.tree_index].nodes,
                          step_.plan.trees[round.tree_index].levels});
    TreePass pass;
    pass.trees = trees_;
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
    const auto ops = step_.memory.host.list<kernels::CompactOp>(rounds.size());
    DS_TRY(step_.check_memory("the choices of the target"));
    for (const Round& round : rounds) {
        const int tree_index = round.tree_index;
        ops[tree_index] = round.sequence->cache.path_move(
            step_.layout.path(tree_index), step_.layout.path_count(tree_index),
            std::min(step_.plan.width, step_.layout.trees()[tree_index].nodes));
    }
    backend.compact(ops);
    return {};
}

Status BackendStep::finish(std::span<DraftJob> jobs, std::span<Round> rounds) {
    DS_TRY(core_.backend.submit([&]() -> Status {
        if (!enqueued_) core_.backend.join_side_stream();  // nothing may use the memory of a step that failed
        return {};
    }));
    if (!enqueued_) return {};
    if (!jobs.empty()) DS_TRY(core_.drafter.collect(step_, jobs));
    take_trees(jobs, rounds, false);
    step_.spans.record(core_.phases);
    core_.logits.collect(step_, core_.target_results);
    const std::span<const std::int32_t> by_rule = step_.results.values(rule_index_, rule_count_);
    core_.target_results.by_rule.assign(by_rule.begin(), by_rule.end());
    for (Round& round : rounds) round.sequence->device_rows = 0;
    return {};
}

Status BackendStep::commit(Round& round) {
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
    const std::size_t max_rows = std::max(core_.options.tree.levels() + 1, count);
    if (!sequence.device_features.reserve(backend, max_rows * width * sizeof(float)))
        return backend.out_of_memory(fmt::format("the features of {} slots", count));
    const float* features = core_.drafter.needs_hidden() ? outputs_.hidden : outputs_.aux;
    feature_ops_.push_back({.from = features + numel(first_row(round.tree_index), width),
                            .from_stride = width,
                            .rows = step_.layout.path(round.tree_index),
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
    backend.copy_rows(feature_ops_);
    // A drafter was trained with the target's 16-bit features. A GPU rounds them when the drafter reads them.
    if (backend.is_host())
        for (const kernels::CopyRowsOp& op : feature_ops_)
            kernels::cast_to_dtype(core_.backend, Rows<float>(op.to, op.count, op.cols));
    feature_ops_.clear();
}

}  // namespace draftscope
