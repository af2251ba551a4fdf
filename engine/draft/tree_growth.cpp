#include "engine/draft/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/numel.h"

namespace draftscope {

Status TreeGrowth::check(const DraftContext& context, std::span<const DraftJob> jobs) {
    const kernels::BackendLimits limits = context.backend.limits();
    int levels = 0, topk = 0;
    for (const DraftJob& job : jobs) {
        levels = std::max(levels, job.tree.levels());
        topk = std::max(topk, job.tree.topk);
    }
    for (const DraftJob& job : jobs)
        if (job.tree.nodes > 1) DS_TRY(check_ops(limits, job.tree, topk));
    if (context.sampled == nullptr) return {};
    const int support = context.head->support_columns(levels).support;
    if (!limits.can_sample(support))
        return bad_input("a device samples drafts from at most {} tokens, but the head has {}",
                         kernels::max_sample_columns, support);
    return {};
}

Status TreeGrowth::prepare(DraftContext& context, RoundStep& step, std::span<GrowingTree> trees) {
    step_ = &step;
    trees_ = trees;
    int topk = 0, max_nodes = 0, levels = 0;
    for (const GrowingTree& tree : trees) {
        const TreeSpec& shape = tree.job->tree;
        topk = std::max(topk, shape.topk);
        max_nodes += max_width(shape);
        levels = std::max(levels, shape.levels());
    }
    const auto count = static_cast<int>(trees.size());
    const bool shared = rows_.shared_logits();
    // Drafts are sampled separately for each node.
    const int max_rows = shared && context.sampled == nullptr ? count : max_nodes;
    roots_ = step.memory.backend.alloc<float>(numel(count, 2 * rows_.hidden()));
    if (pool_.prepare(context, step, trees, topk, max_rows, max_nodes, shared) &&
        calls_.prepare(context, step, trees, levels, topk, max_rows, shared) &&
        rows_.reserve(step, count, max_nodes) && samples_.prepare(context, step, trees, levels, topk, shared))
        return {};
    return step.out_of_memory(fmt::format("the trees of {}", name_));
}

void TreeGrowth::begin(DraftContext& context) {
    const auto active = step_->memory.host.list<GrowingTree*>(trees_.size());
    const auto copies = step_->memory.host.list<kernels::CopyRowsOp>(trees_.size());
    if (!step_->memory.enough()) return;
    const int width = 2 * rows_.hidden();
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        active[i] = &trees_[i];
        copies[i] = {
            .from = trees_[i].input, .count = 1, .cols = width, .to = roots_ + numel(trees_[i].index, width)};
    }
    if (calls_.needs_inputs()) context.backend.copy_rows(copies);
    calls_.begin(context, 0, active, static_cast<int>(trees_.size()), roots_);
}

Status TreeGrowth::enqueue(DraftContext& context) {
    const auto listed = step_->memory.host.list<GrowingTree*>(trees_.size());
    DS_TRY(step_->check_memory("the trees"));
    std::size_t count = 0;
    for (GrowingTree& tree : trees_) listed[count++] = &tree;
    for (int level = 0; count > 0; ++level) {
        DS_TRY(grow_level(context, level, listed.first(count)));
        count = std::remove_if(listed.begin(), listed.begin() + static_cast<std::ptrdiff_t>(count),
                               [&](const GrowingTree* tree) {
                                   return level >= tree->job->tree.depth || tree->nodes == 0;
                               }) -
                listed.begin();
    }
    calls_.finish(trees_, context.report_coverage);
    if (samples_.active()) step_->layout.draft_probs = samples_.rows(pool_.proposed().tokens);
    rerank(context.phases);
    candidates_index_.reset();
    if (context.keep_candidates && !trees_.empty()) candidates_index_ = pool_.request(step_->results);
    return step_->check_memory("the trees");
}

/// Enqueues the rows of a level, its candidates and the next level's nodes.
Status TreeGrowth::grow_level(DraftContext& context, int level, std::span<GrowingTree* const> trees) {
    const bool shared = rows_.shared_logits();
    int rows = 0;
    for (const GrowingTree* tree : trees) {
        tree->job->rows_per_call.push_back(shared ? 1 : tree->nodes);
        rows += tree->job->rows_per_call.back();
    }
    LevelRows::Level call{context, *step_, level, rows, trees, calls_.needs_inputs()};
    if (level > 0) {
        call.tokens = pool_.tokens();
        call.parents = pool_.parents();
        call.ancestor_slots = pool_.ancestor_slots(level);
    }
    DS_TRY(
        rows_.enqueue(call, [&](const float* inputs) { calls_.begin(context, level, trees, rows, inputs); }));
    DS_TRY(step_->check_memory("the trees"));
    DS_TRY(enqueue_head(context, rows));
    if (samples_.active())
        samples_.enqueue(context.phases, level, trees, pool_.proposed().ids, pool_.proposed().logits);
    {
        const std::uint64_t bytes = numel(rows, pool_.topk()) * (sizeof(float) + sizeof(std::int32_t));
        DeviceSpans::Scope scope(step_->spans, context.phases, Phase::topk, level, rows,
                                 step_->spans.value_bytes(bytes));
        const GrowingTree* without = pool_.grow(level, trees, samples_);
        if (without != nullptr && samples_.active()) return not_numbers(*without->job, level);
    }
    const bool observed = context.observer != nullptr && context.observer->observing();
    return observed ? show_level(context, level, trees) : Status();
}

Status TreeGrowth::enqueue_head(DraftContext& context, int rows) {
    CandidatePool::Proposed& out = pool_.proposed();
    HeadCall call = calls_.current(context);
    call.ids = out.ids;
    call.logits = out.logits;
    call.sums = out.sums;
    if (samples_.active()) samples_.set_outputs(call);
    call.x = rows_.enqueue_head_rows(rows);
    calls_.propose(call);
    out.tokens = call.tokens;
    return context.backend.status();  // a head without memory has not written what the next op reads
}

/// Waits for the candidates so far and reports their trees to the observer.
Status TreeGrowth::show_level(DraftContext& context, int level, std::span<GrowingTree* const> trees) {
    for (const GrowingTree* tree : trees) {
        DraftTree partial;
        DS_TRY(read_partial(*tree, level, partial));
        context.observer->level_done(tree->job->sequence, level, [&] { return partial; });
    }
    return {};
}

/// Reads the tree of the candidates up to `level`.
Status TreeGrowth::read_partial(const GrowingTree& tree, int level, DraftTree& out) {
    kernels::Backend& backend = *step_->backend;
    RoundStep partial;
    partial.plan.add({std::min(tree.job->tree.nodes, tree.num_candidates + 1), level + 1, level + 2});
    DS_TRY(partial.begin(backend, fmt::format("the trees of level {}", level)));
    kernels::RerankOp op = pool_.rerank_op(tree, samples_.active());
    partial.layout.set_rows(op, 0);
    backend.rerank(op);
    RoundResults& results = partial.results;
    const int next = level < tree.job->tree.depth ? tree.nodes : 0;
    const std::size_t pool_index = pool_.request(results), level_index = pool_.request_level(results, tree);
    results.enqueue(backend);
    DS_TRY(backend.synchronize());
    DS_TRY(results.read_tree(0, out));
    DraftCandidates candidates;
    candidates.find(out, pool_.read(results, pool_index, tree));
    for (int node = 1; node < out.size(); ++node)
        if (std::ranges::count(results.values(level_index, next), candidates.place(node)) > 0)
            out.beam.push_back(node);
    return {};
}

void TreeGrowth::rerank(PhaseRecorder& phases) {
    int candidates = 0;
    for (const GrowingTree& tree : trees_) candidates += tree.num_candidates;
    DeviceSpans::Scope scope(step_->spans, phases, Phase::rerank, 0, candidates, 0);
    const auto ops = step_->memory.host.list<kernels::RerankOp>(trees_.size());
    if (!step_->memory.enough()) return;
    RoundLayout& layout = step_->layout;
    for (const GrowingTree& tree : trees_) {
        const int planned = layout.plan().trees[tree.job->tree_index].nodes;
        layout.set_nodes(tree.job->tree_index, std::min(planned, tree.num_candidates + 1));
    }
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        ops[i] = pool_.rerank_op(trees_[i], samples_.active());
        layout.set_rows(ops[i], trees_[i].job->tree_index);
    }
    step_->backend->rerank(ops);
}

Status TreeGrowth::collect(const RoundStep& step, std::span<DraftJob> jobs) {
    calls_.collect();
    for (DraftJob& job : jobs) {
        if (job.is_known) continue;
        DS_TRY(step.results.read_tree(job.tree_index, job.out));
        DS_TRY(check_numbers(job));
    }
    const auto index = std::exchange(candidates_index_, std::nullopt);
    if (!index) return {};
    for (const GrowingTree& tree : trees_) {
        // Samples have no ranks, and a static tree has only the ranks that it names.
        DraftJob& job = *tree.job;
        if (samples_.active() || job.tree.choices) continue;
        job.candidates.find(job.out, pool_.read(step.results, *index, tree));
    }
    return {};
}

Error TreeGrowth::not_numbers(const DraftJob& job, int level) const {
    return failed(
        "{}: the log-probabilities of its drafts are not numbers (sequence {}, position {}, level {}); the "
        "weights of the drafter or its head contain NaN or overflow: check their files",
        name_, job.sequence, job.tokens.size() - 1, level);
}

/// Returns an error if a row of the head had no finite log-probability: if the best of a node's drafts, which
/// is the first, has none. Sampling finds no drafts in such a row.
Status TreeGrowth::check_numbers(const DraftJob& job) const {
    const DraftTree& tree = job.out;
    if (samples_.active() && tree.size() == 1 && job.tree.nodes > 1) return not_numbers(job, 0);
    for (int i = 1; i < tree.size(); ++i) {
        if (std::isfinite(tree.logprobs[i])) continue;
        const auto same_parent = std::find(tree.parents.begin() + 1, tree.parents.end(), tree.parents[i]);
        if (same_parent == tree.parents.begin() + i) return not_numbers(job, tree.depths[i] - 1);
    }
    return {};
}

}  // namespace draftscope
