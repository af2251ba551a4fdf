#include "engine/draft/candidate_pool.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {

bool CandidatePool::prepare(DraftContext& context, RoundStep& step, std::span<GrowingTree> trees, int topk,
                            int max_rows, int max_nodes, bool shared) {
    step_ = &step;
    topk_ = topk;
    shared_ = shared;
    size_ = 0;
    index_stride_ = kernels::max_topk;
    int levels = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        GrowingTree& tree = trees[i];
        const TreeSpec& shape = tree.job->tree;
        tree.index = tree.first_node = tree.first_row = static_cast<int>(i);
        tree.pool = size_;
        tree.num_candidates = tree.slots = 0;
        tree.nodes = 1;
        size_ += numel(total_width(shape), topk);
        index_stride_ = std::max(index_stride_, max_width(shape));
        levels = std::max(levels, shape.levels());
    }
    RoundArena& arena = step.memory.backend;
    const std::size_t num_candidates = numel(max_rows, topk), nodes = max_nodes;
    const std::size_t indexed = numel(static_cast<int>(trees.size()), index_stride_);
    proposed_ = {arena.alloc<std::int32_t>(num_candidates), arena.alloc<float>(num_candidates),
                 arena.alloc<float>(max_rows), nullptr};
    pool_ = arena.alloc<std::int32_t>(5 * size_);
    scores_ = arena.alloc<float>(indexed);
    indices_ = arena.alloc<std::int32_t>(indexed);
    static_rows_ = arena.alloc<std::int32_t>(indexed);
    counts_ = arena.alloc<std::int32_t>(2 * trees.size());
    tokens_ = arena.alloc<std::int32_t>(nodes);
    parents_ = arena.alloc<std::int32_t>(nodes);
    for (std::int32_t*& slots : slots_) slots = arena.alloc<std::int32_t>(nodes * levels);
    static_levels_.upload(context.backend, arena, trees, topk, context.sampled != nullptr);
    return step.memory.enough();
}

const GrowingTree* CandidatePool::grow(int level, std::span<GrowingTree* const> trees,
                                       const DraftSamples& samples) {
    const auto ops = step_->memory.host.list<kernels::BeamOp>(trees.size());
    if (!step_->memory.enough()) return nullptr;
    int planned = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        const TreeSpec& shape = trees[i]->job->tree;
        const int keep = level < shape.depth ? width_at(shape, level + 1) : 0;
        ops[i] = beam_op(*trees[i], level, keep, planned, samples);
        planned += keep;
    }
    kernels::Backend& backend = *step_->backend;
    backend.beam(ops);
    const GrowingTree* without = nullptr;
    int node = 0, row = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        GrowingTree& tree = *trees[i];
        const int proposing = tree.nodes;
        const int added = backend.known_count(ops[i].counts, proposing * topk_);
        if (added == 0 && proposing > 0 && without == nullptr) without = &tree;
        tree.num_candidates += added;
        tree.first_node = node;
        tree.first_row = row;
        if (level >= tree.job->tree.depth) continue;
        tree.slots += level == 0 ? 0 : proposing;
        tree.nodes = backend.known_count(ops[i].counts + 1, ops[i].keep);
        node += tree.nodes;
        row += shared_ ? std::min(1, tree.nodes) : tree.nodes;
    }
    return without;
}

/// Returns the op that adds a level's candidates to a tree's pool and chooses `keep` nodes of the next level,
/// which start at `next_first`.
kernels::BeamOp CandidatePool::beam_op(const GrowingTree& tree, int level, int keep, int next_first,
                                       const DraftSamples& samples) const {
    const bool sampled = samples.active();
    // Drafts are sampled separately for each node.
    const std::size_t first = numel(sampled ? tree.first_node : tree.first_row, topk_);
    const std::size_t at = tree.pool + tree.num_candidates, indexed = numel(tree.index, index_stride_);
    auto* as_floats = reinterpret_cast<float*>(pool_);
    kernels::BeamOp op;
    op.level = level;
    op.rows = tree.nodes;
    op.k = topk_;
    op.shared_logits = shared_ && !sampled;
    op.sampled = sampled;
    op.ids = proposed_.ids + first;
    op.logits = proposed_.logits + first;
    op.logsumexp = proposed_.sums + tree.first_row;
    op.tokens = proposed_.tokens;
    op.pool_tokens = pool_ + at;
    op.pool_logprobs = as_floats + size_ + at;
    op.pool_scores = as_floats + 3 * size_ + at;
    op.pool_parents = pool_ + 2 * size_ + at;
    if (sampled) {
        op.pool_rows = pool_ + 4 * size_ + at;
        op.next_first_row = samples.first_row(level + 1) + next_first;
    }
    if (const AdaptiveLength* length = tree.job->tree.adaptive.get(); length != nullptr) {
        const ConfidenceLimits limits = length->limits();
        op.min_logprob = limits.min_logprob;
        op.min_score = limits.min_cum_logprob;
        op.min_next_logprob = limits.min_next_logprob;
    }
    op.row_indices = indices_ + indexed;
    op.first_index = tree.num_candidates;
    op.keep = keep;
    static_levels_.set(op, tree.index, level);
    op.packed = true;
    op.counts = counts_ + 2 * static_cast<std::ptrdiff_t>(tree.index);
    op.static_rows = static_rows_ + indexed;
    op.first_row = tree.first_node;
    op.first_slot = tree.free_slot + tree.slots + (level == 0 ? 0 : tree.nodes);
    op.scores = scores_ + indexed;
    op.next_tokens = tokens_ + next_first;
    op.next_rows = parents_ + next_first;
    // A node of level l has l slots: its own and those of its ancestors below the root.
    op.ancestor_slots = level == 0 ? nullptr : ancestor_slots(level) + numel(tree.first_node, level);
    op.next_ancestor_slots = ancestor_slots(level + 1) + numel(next_first, level + 1);
    return op;
}

kernels::RerankOp CandidatePool::rerank_op(const GrowingTree& tree, bool sampled) const {
    auto* as_floats = reinterpret_cast<float*>(pool_);
    kernels::RerankOp op;
    op.candidates = tree.num_candidates;
    op.by_score = tree.job->tree.order == TreeOrder::fr;
    op.pool_tokens = pool_ + tree.pool;
    op.pool_logprobs = as_floats + size_ + tree.pool;
    op.pool_scores = as_floats + 3 * size_ + tree.pool;
    op.pool_parents = pool_ + 2 * size_ + tree.pool;
    op.sampled = sampled;
    if (sampled) op.pool_rows = pool_ + 4 * size_ + tree.pool;
    op.root_row = tree.index;
    op.root = tree.job->tokens.back();
    // The target has one slot for each token before the root.
    op.first_slot = op.first_position = static_cast<int>(tree.job->tokens.size()) - 1;
    return op;
}

DraftCandidates::Pool CandidatePool::read(const RoundResults& results, std::size_t index,
                                          const GrowingTree& tree) const {
    const std::size_t first = index + tree.pool, count = tree.num_candidates;
    return {results.values<TokenId>(first, count), results.values<float>(first + size_, count),
            results.values(first + 2 * size_, count), topk_};
}

}  // namespace draftscope
