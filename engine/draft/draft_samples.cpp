#include "engine/draft/draft_samples.h"

#include <algorithm>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

bool DraftSamples::prepare(const DraftContext& context, RoundStep& step, std::span<const GrowingTree> trees,
                           int levels, int topk, bool shared) {
    settings_ = context.sampled;
    if (!active()) return true;
    step_ = &step;
    shared_ = shared;
    topk_ = topk;
    columns_ = context.head->support_columns(levels);
    first_rows_.assign(1, 0);
    host_uniforms_.clear();
    std::size_t planned = trees.size();
    for (const GrowingTree& tree : trees) planned += total_width(tree.job->tree);
    const std::span<std::int32_t> sizes = step.memory.host.list<std::int32_t>(columns_.per_row ? planned : 0);
    int widest = 0;
    for (int level = 0; level < levels; ++level) {
        int row = first_rows_.back();
        for (const GrowingTree& tree : trees) {
            if (level >= tree.job->tree.levels()) continue;
            add_uniforms(tree, level, width_at(tree.job->tree, level));
            row += width_at(tree.job->tree, level);
        }
        if (columns_.per_row && !columns_.counted && !sizes.empty())
            std::fill(sizes.begin() + first_rows_.back(), sizes.begin() + row,
                      context.head->shape(level, 1).support);
        widest = std::max(widest, row - first_rows_.back());
        first_rows_.push_back(row);
    }
    // The second half is scratch memory of the acceptance. Until then it holds the shared rows of
    // stored_at().
    const std::size_t rows = first_rows_.back(), stride = columns_.stride;
    RoundArena& arena = step.memory.backend;
    logits_ = arena.alloc<float>(2 * rows * stride);
    uniforms_ = arena.alloc<double>(rows * topk);
    min_logit_ = arena.alloc<float>(widest);
    last_tied_ = arena.alloc<std::int32_t>(widest);
    if (columns_.per_row) {
        tokens_ = arena.alloc<std::int32_t>((rows + trees.size()) * stride);
        sizes_ = arena.alloc<std::int32_t>(rows + trees.size());
    }
    if (!step.memory.enough()) return false;
    context.backend.upload(uniforms_, host_uniforms_.data(), host_uniforms_.size() * sizeof(double));
    if (columns_.per_row) context.backend.upload(sizes_, sizes.data(), sizes.size_bytes());
    return true;
}

/// Adds the uniforms of the drafts of `nodes` nodes of a level.
void DraftSamples::add_uniforms(const GrowingTree& tree, int level, int nodes) {
    const auto sequence = static_cast<std::uint64_t>(tree.job->sequence);
    const auto position = static_cast<std::int64_t>(tree.job->tokens.size()) + level;
    for (int node = 0; node < nodes; ++node)
        for (int order = 0; order < topk_; ++order)
            host_uniforms_.push_back(draft_uniform(settings_->seed, sequence, position, order));
}

void DraftSamples::set_outputs(HeadCall& call) const {
    const int at = stored_at(call.level);
    call.support_logits = logits(at);
    call.support_stride = columns_.stride;
    call.temperature = settings_->temperature;
    if (!columns_.per_row) return;
    call.support_tokens = tokens(at);
    call.support_sizes = sizes_ + at;
}

/// Copies the shared row of each tree to all its nodes, because the acceptance modifies each node's row.
void DraftSamples::copy_shared_rows(int level, std::span<GrowingTree* const> trees) {
    const int stride = columns_.stride;
    const auto copies = step_->memory.host.list<kernels::CopyRowsOp>(3 * trees.size());
    if (copies.empty()) return;
    std::size_t count = 0;
    int from = stored_at(level), to = first_row(level);
    for (const GrowingTree* tree : trees) {
        const int nodes = tree->nodes;
        copies[count++] = {.from = logits(from),
                           .count = nodes,
                           .cols = columns_.support,
                           .to = logits(to),
                           .to_stride = stride};
        if (columns_.per_row)
            copies[count++] = copy_of_words(tokens(from), 0, nodes, columns_.support, tokens(to), stride);
        if (columns_.per_row && columns_.counted)
            copies[count++] = copy_of_words(sizes_ + from, 0, nodes, 1, sizes_ + to, 1);
        to += nodes;
        ++from;
    }
    step_->backend->copy_rows(copies.first(count));
}

void DraftSamples::enqueue(PhaseRecorder& phases, int level, std::span<GrowingTree* const> trees,
                           std::int32_t* ids, float* logprobs) {
    int rows = 0;
    for (const GrowingTree* tree : trees) rows += tree->nodes;
    DeviceSpans::Scope scope(step_->spans, phases, Phase::topk, level, rows,
                             step_->spans.value_bytes(numel(rows, columns_.support) * sizeof(float)));
    double* uniforms = uniforms_ + numel(first_row(level), topk_);
    if (rows != planned_rows(level)) {  // nodes are missing: others took their rows
        host_uniforms_.clear();
        for (const GrowingTree* tree : trees) add_uniforms(*tree, level, tree->nodes);
        step_->backend->upload(uniforms, host_uniforms_.data(), host_uniforms_.size() * sizeof(double));
    }
    if (stored_at(level) != first_row(level)) copy_shared_rows(level, trees);
    kernels::SampleWithoutReplacementOp op;
    op.logits = logits(first_row(level));
    op.stride = columns_.stride;
    op.rows = rows;
    op.support = columns_.support;
    op.k = topk_;
    op.temperature = settings_->temperature;
    op.top_k = settings_->top_k;
    op.top_p = settings_->top_p;
    op.uniforms = uniforms;
    op.ids = ids;
    op.logprobs = logprobs;
    op.min_logit = min_logit_;
    op.last_tied_id = last_tied_;
    if (columns_.per_row) {
        op.sizes = sizes_ + first_row(level);
        op.tokens = tokens(first_row(level));
    }
    step_->backend->sample_without_replacement(op);
}

DraftProbs DraftSamples::rows(const TokenId* head_tokens) const {
    return {logits(0),
            logits(first_rows_.back()),
            columns_.stride,
            columns_.support,
            columns_.per_row ? tokens_ : head_tokens,
            columns_.per_row ? sizes_ : nullptr};
}

}  // namespace draftscope
