#include "engine/draft/draft_samples.h"

#include <algorithm>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

bool DraftSamples::prepare(kernels::Backend& backend, const DraftContext& context,
                           std::span<const GrowingTree> trees, int levels, int k, bool shared) {
    settings_ = context.sampled;
    if (!active()) return true;
    backend_ = &backend;
    shared_ = shared;
    levels_ = levels;
    k_ = k;
    place_rows(trees);
    columns_ = context.head->support_columns(levels);
    uniforms_.clear();
    sizes_.clear();
    int widest = 0;
    for (int level = 0; level < levels_; ++level) {
        for (const GrowingTree& tree : trees) {
            // On the CPU, upload_uniforms() does this at each level.
            if (backend.is_host() || level >= tree.job->tree.levels()) continue;
            add_uniforms(tree, level, width_at(tree.job->tree, level));
        }
        sizes_.resize(first_row(level + 1), columns_.counted ? 0 : context.head->shape(level, 1).support);
        widest = std::max(widest, first_row(level + 1) - first_row(level));
    }
    // The second half is scratch memory of the acceptance. Until then it holds the shared rows of
    // stored_at().
    const int rows = first_rows_.back();
    uniforms_.resize(numel(rows, k_));
    if (!logits_.reserve(backend, 2 * numel(rows, columns_.stride) * sizeof(float)) ||
        !d_uniforms_.upload(backend, uniforms_) || !lowest_.resize_at_least(backend, numel(widest, 1)) ||
        !last_.resize_at_least(backend, numel(widest, 1)))
        return false;
    if (!columns_.own) return true;
    const auto shared_rows = static_cast<int>(trees.size());
    sizes_.resize(numel(rows + shared_rows, 1));
    return tokens_.reserve(backend, numel(rows + shared_rows, columns_.stride) * sizeof(std::int32_t)) &&
           d_sizes_.upload(backend, sizes_);
}

/// Assigns rows to the nodes whose children are sampled, level by level.
void DraftSamples::place_rows(std::span<const GrowingTree> trees) {
    first_rows_.assign(1, 0);
    for (int level = 0; level < levels_; ++level) {
        int rows = first_rows_.back();
        for (const GrowingTree& tree : trees)
            if (level < tree.job->tree.levels()) rows += width_at(tree.job->tree, level);
        first_rows_.push_back(rows);
    }
}

/// Adds the uniforms of the drafts of `nodes` nodes of a level.
void DraftSamples::add_uniforms(const GrowingTree& tree, int level, int nodes) {
    const auto sequence = static_cast<std::uint64_t>(tree.job->sequence);
    const auto position = static_cast<std::int64_t>(tree.job->tokens.size()) + level;
    for (int node = 0; node < nodes; ++node)
        for (int order = 0; order < k_; ++order)
            uniforms_.push_back(draft_uniform(settings_->seed, sequence, position, order));
}

void DraftSamples::aim(HeadCall& call) const {
    const int at = stored_at(call.level);
    call.support_logits = logits(at);
    call.support_stride = columns_.stride;
    call.temperature = settings_->temperature;
    if (!columns_.own) return;
    call.support_tokens = tokens(at);
    call.support_sizes = d_sizes_.data() + at;
}

/// Copies the shared row of each tree to all its nodes, because the acceptance modifies each node's row.
void DraftSamples::give_each_node_a_row(int level, std::span<GrowingTree* const> trees) {
    const int stride = columns_.stride;
    copies_.clear();
    int from = stored_at(level) - 1, to = first_row(level), nodes = 0;
    for (const GrowingTree* tree : trees) {
        to += nodes;
        nodes = tree->nodes;
        ++from;
        copies_.push_back({logits(from), 0, nullptr, nodes, columns_.support, logits(to), stride});
        if (!columns_.own) continue;
        copies_.push_back(copy_of_words(tokens(from), 0, nodes, columns_.support, tokens(to), stride));
        std::int32_t* sizes = d_sizes_.data();
        if (columns_.counted) copies_.push_back(copy_of_words(sizes + from, 0, nodes, 1, sizes + to, 1));
    }
    backend_->copy_rows(copies_);
}

/// Uploads the uniforms of a level's rows. On the CPU, trees whose candidates were missing have fewer nodes
/// than planned.
void DraftSamples::upload_uniforms(int level, std::span<GrowingTree* const> trees) {
    uniforms_.clear();
    for (const GrowingTree* tree : trees) add_uniforms(*tree, level, tree->nodes);
    backend_->upload(d_uniforms_.data() + numel(first_row(level), k_), uniforms_.data(),
                     uniforms_.size() * sizeof(double));
}

void DraftSamples::enqueue(DraftContext& context, DeviceSpans& spans, int level,
                           std::span<GrowingTree* const> trees, std::int32_t* ids, float* logprobs) {
    int rows = 0;
    for (const GrowingTree* tree : trees) rows += tree->nodes;
    DeviceSpans::Scope enqueued(spans, context.phases, Phase::topk, level, rows,
                                backend_->is_host() ? 0 : numel(rows, columns_.support) * sizeof(float));
    const std::size_t first_uniform = numel(first_row(level), k_);
    if (backend_->is_host()) upload_uniforms(level, trees);
    if (stored_at(level) != first_row(level)) give_each_node_a_row(level, trees);
    kernels::SampleWithoutReplacementOp op;
    op.logits = logits(first_row(level));
    op.stride = columns_.stride;
    op.rows = rows;
    op.support = columns_.support;
    op.k = k_;
    op.temperature = settings_->temperature;
    op.top_k = settings_->top_k;
    op.top_p = settings_->top_p;
    op.uniforms = d_uniforms_.data() + first_uniform;
    op.ids = ids;
    op.logprobs = logprobs;
    op.min_logit = lowest_.data();
    op.last_tied_id = last_.data();
    if (columns_.own) {
        op.sizes = d_sizes_.data() + first_row(level);
        op.tokens = tokens(first_row(level));
    }
    backend_->sample_without_replacement(op);
}

DrawnFrom DraftSamples::rows(const TokenId* head_tokens) const {
    return {logits(0),
            logits(first_rows_.back()),
            columns_.stride,
            columns_.support,
            columns_.own ? tokens(0) : head_tokens,
            columns_.own ? d_sizes_.data() : nullptr};
}

}  // namespace draftscope
