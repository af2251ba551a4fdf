#include "engine/verify/target_logits.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/numel.h"

namespace draftscope {

Status check_query(const kernels::Backend& backend, const LogitsQuery& query) {
    const kernels::BackendLimits limits = backend.limits();
    if (limits.can_sample(query.vocab) &&
        limits.can_topk(query.vocab, std::clamp(query.best, 1, query.vocab)))
        return {};
    return bad_input("a device verifies vocabularies of at most {} tokens, the target has {}",
                     kernels::max_sample_columns, query.vocab);
}

bool TargetLogits::begin(kernels::Backend& backend, RoundStep& step, const LogitsQuery& query, int columns) {
    backend_ = &backend;
    query_ = query;
    rows_ = step.layout.rows();
    columns_ = columns;
    sampled_ = !step.plan.uniforms.empty();
    masked_ = sampled_ && (query.top_p < 1 || (query.top_k > 0 && query.top_k < query.vocab));
    best_ = std::clamp(query.best, sampled_ ? 0 : 1, query.vocab);
    const bool sets = step.plan.sets_by_head || !step.plan.sets.empty();
    const bool best_suffice = !sampled_ && !query.drafts && !query.complete && !sets;
    const std::size_t rows = rows_, drafts = query.drafts ? rows : 0;
    const std::size_t sizes[] = {
        rows * best_, rows * best_, rows,   rows,   rows,
        rows,         rows,         drafts, drafts, sets ? numel(step.plan.count(), step.plan.width) : 0};
    for (std::size_t i = 0; i < std::size(sizes); ++i) first_[i + 1] = first_[i] + sizes[i];
    RoundArena& arena = step.memory.backend;
    results_ = arena.alloc<std::int32_t>(at(Field::end));
    topk_scratch_ =
        best_ == 0 ? nullptr : arena.alloc<std::byte>(kernels::topk_scratch_bytes(rows_, query.vocab, best_));
    logits_ = nullptr;
    if (!best_suffice || !backend.prefers_matmul_topk(query.vocab, best_))
        logits_ = arena.alloc<float>(numel(rows_, columns));
    is_downloaded_.assign(rows, 0);
    return arena.enough();
}

kernels::MatmulTopKOp TargetLogits::best_op() const {
    kernels::MatmulTopKOp op;
    op.support = query_.vocab;
    op.k = best_;
    op.ids = ints(Field::best_ids);
    op.values = floats(Field::best_logits);
    op.logsumexp = floats(Field::log_norm);
    op.scratch = topk_scratch_;
    return op;
}

void TargetLogits::enqueue_best() {
    kernels::TopKOp op;
    op.logits = logits_;
    op.stride = columns_;
    op.rows = rows_;
    op.support = query_.vocab;
    op.k = best_;
    op.ids = ints(Field::best_ids);
    op.values = floats(Field::best_logits);
    // The norm of greedy rows is at temperature 1. Sampling computes that of sampled rows.
    op.logsumexp = sampled_ ? nullptr : floats(Field::log_norm);
    op.scratch = topk_scratch_;
    backend_->topk(op);
}

void TargetLogits::enqueue_choices(const double* uniforms) {
    kernels::SampleOp op;
    if (masked_) {
        kernels::TopKTopPMaskOp mask;
        mask.logits = logits_;
        mask.stride = columns_;
        mask.rows = rows_;
        mask.vocab = query_.vocab;
        mask.inv_temperature = query_.scale;
        mask.top_k = query_.top_k;
        mask.top_p = query_.top_p;
        mask.min_logit = floats(Field::min_logit);
        mask.last_tied_id = ints(Field::last_tied_id);
        backend_->mask_top_k_top_p(mask);
        op.mask = {mask.min_logit, mask.last_tied_id};
    }
    op.logits = logits_;
    op.stride = columns_;
    op.rows = rows_;
    op.vocab = query_.vocab;
    op.inv_temperature = query_.scale;
    op.uniforms = uniforms;
    op.tokens = ints(Field::choices);
    op.values = floats(Field::choice_logits);
    op.log_norm = floats(Field::log_norm);
    backend_->sample(op);
}

void TargetLogits::enqueue(const RoundStep& step) {
    const kernels::TreeRows& trees = step.layout.arrays();
    rows_ = step.layout.rows();
    if (logits_ != nullptr && best_ > 0) enqueue_best();
    if (sampled_) enqueue_choices(trees.uniforms);
    if (!query_.drafts) return;
    kernels::RankOp op;
    op.logits = logits_;
    op.stride = columns_;
    op.vocab = query_.vocab;
    op.count = rows_;
    op.rows = trees.parents;
    op.tokens = trees.tokens;
    op.values = floats(Field::logits);
    op.ranks = query_.ranks ? ints(Field::ranks) : nullptr;
    backend_->rank(op);
}

void TargetLogits::enqueue_set_probabilities(RoundStep& step) {
    const auto ops = step.memory.host.list<kernels::SetProbabilityOp>(step.layout.trees().size());
    std::size_t count = 0;
    for (int tree_index = 0; tree_index < static_cast<int>(ops.size()); ++tree_index) {
        if (!step.layout.sets.has(tree_index)) continue;
        kernels::SetProbabilityOp& op = ops[count++];
        step.layout.set_rows(op, tree_index);
        op.logits = logits_;
        op.stride = columns_;
        op.inv_temperature = inverse_temperature();
        op.log_norm = log_norm();
        op.min_logit = min_logit();
        op.out = floats(Field::set_probs) + numel(tree_index, step.plan.width);
    }
    if (count > 0) backend_->sum_set_probability(ops.first(count));
}

void TargetLogits::request(RoundStep& step) {
    index_ = step.results.request(results_, at(Field::end));
}

void TargetLogits::collect(const RoundStep& step, LogitsResult& out) const {
    const std::size_t rows = rows_;
    const auto take = [&]<typename T>(std::vector<T>& to, Field field, std::size_t count) {
        const std::span<const T> from = step.results.values<T>(index_ + at(field), count);
        to.assign(from.begin(), from.end());
    };
    out.best = best_;
    take(out.best_ids, Field::best_ids, rows * best_);
    take(out.best_logits, Field::best_logits, rows * best_);
    take(out.log_norm, Field::log_norm, rows);
    if (masked_)
        take(out.min_logit, Field::min_logit, rows);
    else
        out.min_logit.assign(rows, -std::numeric_limits<float>::infinity());
    take(out.logits, Field::logits, query_.drafts ? rows : 0);
    take(out.ranks, Field::ranks, query_.drafts && query_.ranks ? rows : 0);
    if (sampled_) {
        take(out.choices, Field::choices, rows);
        take(out.choice_logits, Field::choice_logits, rows);
    } else {
        out.choices.resize(rows);
        out.choice_logits.resize(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            out.choices[r] = out.best_ids[r * best_];
            out.choice_logits[r] = out.best_logits[r * best_];
        }
    }
    const int width = out.width = step.plan.width;
    take(out.set_probs, Field::set_probs, at(Field::end) - at(Field::set_probs));
    for (int tree_index = 0; !out.set_probs.empty() && tree_index < step.plan.count(); ++tree_index)
        if (!step.layout.sets.has(tree_index))
            std::fill_n(out.set_probs.begin() + numel(tree_index, width), width, 0.0f);
}

Rows<const float> TargetLogits::download(int first, int count) {
    const std::size_t end = numel(first + count, columns_);
    if (downloaded_.size() < end) downloaded_.resize(end);
    bool waiting = false;
    const std::lock_guard lock(backend_->submit_mutex());
    for (int r = first; r < first + count; ++r) {
        if (is_downloaded_[r] != 0) continue;
        const std::size_t at = numel(r, columns_);
        backend_->download(downloaded_.data() + at, logits_ + at, columns_ * sizeof(float));
        is_downloaded_[r] = 1;
        waiting = true;
    }
    if (waiting) (void)backend_->synchronize();  // the error persists and fails the next forward pass
    return {downloaded_.data() + numel(first, columns_), count, columns_};
}

}  // namespace draftscope
