#include "engine/transformer/device_logits.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/numel.h"
#include "kernels/matrix.h"

namespace draftscope {
namespace {

/// Maximum weights of one rejection-sampling op: several times the nodes that occupy all processors.
constexpr std::size_t max_weight_bytes = std::size_t{256} << 20;

template <typename T>
void take(std::vector<T>& to, const std::vector<std::int32_t>& from, std::size_t first, std::size_t count) {
    static_assert(sizeof(T) == sizeof(std::int32_t));
    to.resize(count);
    if (count > 0) std::memcpy(to.data(), from.data() + first, count * sizeof(T));
}

}  // namespace

bool can_answer(const LogitsQuery& query) {
    return query.vocab <= kernels::max_sample_columns &&
           kernels::can_topk(query.vocab, std::clamp(query.best, 1, query.vocab));
}

bool DeviceLogits::reserve(kernels::Backend& backend, int rows, int columns) {
    backend_ = &backend;
    rows_ = rows;
    columns_ = columns;
    here_.assign(rows, 0);
    return logits_.reserve(backend, numel(rows, columns) * sizeof(float));
}

bool DeviceLogits::begin(kernels::Backend& backend, int columns, const LogitsQuery& query,
                         const TreeStep& step) {
    assert(backend.is_host() || can_answer(query));
    backend_ = &backend;
    query_ = query;
    rows_ = step.rows();
    columns_ = columns;
    sampled_ = step.samples_choices();
    masked_ = sampled_ && (query.top_p < 1 || (query.top_k > 0 && query.top_k < query.vocab));
    best_ = std::clamp(query.best, sampled_ ? 0 : 1, query.vocab);
    masses_ = step.has_sets();
    const bool best_suffice = !sampled_ && !query.drafts && !query.complete && !masses_;
    stored_ = !best_suffice || !backend.prefers_matmul_topk(query.vocab, best_);
    return (!stored_ || reserve(backend, rows_, columns)) && lay_out(step);
}

/// Computes the positions of the results and reserves memory for them.
bool DeviceLogits::lay_out(const TreeStep& step) {
    tokens_ = query_.drafts ? rows_ : 0;
    trees_ = static_cast<int>(step.trees().size());
    width_ = step.rows_on_device().width;
    const std::size_t rows = rows_, tokens = tokens_, nodes = query_.rejections ? rows : 0;
    at_.best_ids = 0;
    at_.best_logits = numel(rows_, best_);
    at_.choices = 2 * at_.best_logits;
    at_.choice_logits = at_.choices + rows;
    at_.log_norm = at_.choice_logits + rows;
    at_.lowest = at_.log_norm + rows;
    at_.last = at_.lowest + rows;
    at_.logits = at_.last + rows;
    at_.ranks = at_.logits + tokens;
    at_.masses = at_.ranks + tokens;
    at_.bonus = at_.masses + numel(trees_, width_);
    at_.bonus_logits = at_.bonus + nodes;
    at_.end = at_.bonus_logits + nodes;
    const std::size_t scratch = best_ == 0 ? 0 : kernels::topk_scratch_bytes(rows_, query_.vocab, best_);
    return d_answers_.resize_at_least(*backend_, at_.end) && scratch_.resize_at_least(*backend_, scratch);
}

void DeviceLogits::enqueue_best(const kernels::Matrix& lm_head, kernels::Activations x) {
    assert(!stored_);
    kernels::MatmulTopKOp op;
    op.weights = lm_head.device_matrix();
    op.x = x;
    op.rows = rows_;
    op.support = query_.vocab;
    op.k = best_;
    op.ids = ints(at_.best_ids);
    op.values = floats(at_.best_logits);
    op.logsumexp = floats(at_.log_norm);
    op.scratch = scratch_.as<void>();
    backend_->matmul_topk(op);
}

void DeviceLogits::enqueue_topk() {
    kernels::TopKOp op;
    op.logits = data();
    op.stride = columns_;
    op.rows = rows_;
    op.support = query_.vocab;
    op.k = best_;
    op.ids = ints(at_.best_ids);
    op.values = floats(at_.best_logits);
    // The norm of greedy rows is at temperature 1. Sampling computes that of sampled rows.
    op.logsumexp = sampled_ ? nullptr : floats(at_.log_norm);
    op.scratch = scratch_.as<void>();
    backend_->topk(op);
}

void DeviceLogits::enqueue_samples(const double* uniforms) {
    kernels::SampleOp op;
    if (masked_) {
        backend_->mask_top_k_top_p({data(), columns_, rows_, query_.vocab, query_.scale, query_.top_k,
                                    query_.top_p, floats(at_.lowest), ints(at_.last)});
        op.mask = {floats(at_.lowest), ints(at_.last)};
    }
    op.logits = data();
    op.stride = columns_;
    op.rows = rows_;
    op.vocab = query_.vocab;
    op.inv_temperature = query_.scale;
    op.uniforms = uniforms;
    op.tokens = ints(at_.choices);
    op.values = floats(at_.choice_logits);
    op.log_norm = floats(at_.log_norm);
    backend_->sample(op);
}

/// Enqueued after sampling, whose norms it reads.
bool DeviceLogits::accept_by_rejection(TreeStep& step) {
    int max_nodes = rows_;
    if (!backend_->is_host()) {
        const std::size_t node_bytes = numel(1, query_.vocab) * sizeof(float);
        max_nodes = std::clamp(static_cast<int>(max_weight_bytes / node_bytes), 1, rows_);
        if (!weights_.resize_at_least(*backend_, numel(max_nodes, query_.vocab))) return false;
    }
    if (!accepted_.resize_at_least(*backend_, numel(rows_, 1))) return false;
    kernels::RejectionSampleOp op;
    op.logits = data();
    op.stride = columns_;
    op.vocab = query_.vocab;
    op.count = rows_;
    op.inv_temperature = query_.scale;
    op.log_norm = floats(at_.log_norm);
    op.min_logit = min_logits();
    op.weights = weights_.data();
    op.accepted = accepted_.data();
    op.bonus = ints(at_.bonus);
    op.bonus_logits = floats(at_.bonus_logits);
    step.accept_by_rejection(op, max_nodes);
    return true;
}

bool DeviceLogits::accept_typical(TreeStep& step) {
    assert(sampled_);
    if (!backend_->is_host() && !entropies_.resize_at_least(*backend_, numel(rows_, 1))) return false;
    kernels::EntropyOp entropy;
    entropy.logits = data();
    entropy.stride = columns_;
    entropy.rows = rows_;
    entropy.vocab = query_.vocab;
    entropy.inv_temperature = query_.scale;
    entropy.log_norm = floats(at_.log_norm);
    entropy.min_logit = min_logits();
    entropy.out = entropies_.data();
    kernels::AcceptTypicalOp op;
    op.inv_temperature = query_.scale;
    op.epsilon = query_.epsilon;
    op.delta = query_.delta;
    op.draft_logits = floats(at_.logits);
    op.log_norm = floats(at_.log_norm);
    op.min_logit = min_logits();
    op.entropies = entropies_.data();
    step.accept_typical(entropy, op);
    return true;
}

bool DeviceLogits::enqueue_answers(TreeStep& step) {
    assert(step.rows() == rows_ && step.has_sets() == masses_);
    const kernels::TreeRows& trees = step.rows_on_device();
    if (stored_ && best_ > 0) enqueue_topk();
    if (sampled_) enqueue_samples(trees.uniforms);
    if (query_.drafts) enqueue_drafts(trees);
    if (query_.rejections) {
        if (!accept_by_rejection(step)) return false;
    } else if (query_.typical) {
        if (!accept_typical(step)) return false;
    } else {
        step.accept_by_choices(query_.first_children ? nullptr : ints(sampled_ ? at_.choices : at_.best_ids),
                               sampled_ ? 1 : best_);
    }
    if (masses_) enqueue_masses(step);
    answers_.resize(at_.end);
    step.add_download(answers_.data(), d_answers_.as<void>(), answers_.size() * sizeof(answers_[0]));
    return true;
}

/// Enqueues the logit and the rank of each row's token in its parent's row.
void DeviceLogits::enqueue_drafts(const kernels::TreeRows& trees) {
    backend_->rank({data(), columns_, query_.vocab, tokens_, trees.parents, trees.tokens, floats(at_.logits),
                    query_.ranks ? ints(at_.ranks) : nullptr});
}

/// Enqueues the probability of the token sets along the accepted paths.
void DeviceLogits::enqueue_masses(const TreeStep& step) {
    mass_ops_.clear();
    no_sets_.clear();
    for (int tree = 0; tree < trees_; ++tree) {
        kernels::SetProbabilityOp op;
        if (!step.aim(op, tree)) {
            no_sets_.push_back(tree);
            continue;
        }
        op.logits = data();
        op.stride = columns_;
        op.inv_temperature = sampled_ ? query_.scale : 1.0f;
        op.log_norm = floats(at_.log_norm);
        op.min_logit = min_logits();
        op.out = floats(at_.masses) + row_offset(tree, width_);
        mass_ops_.push_back(op);
    }
    backend_->sum_set_probability(mass_ops_);
}

void DeviceLogits::collect(LogitsResult& out) {
    const std::size_t rows = rows_, tokens = tokens_, width = best_;
    out.best = best_;
    take(out.best_ids, answers_, at_.best_ids, rows * width);
    take(out.best_logits, answers_, at_.best_logits, rows * width);
    take(out.log_norm, answers_, at_.log_norm, rows);
    if (masked_)
        take(out.lowest, answers_, at_.lowest, rows);
    else
        out.lowest.assign(rows, -std::numeric_limits<float>::infinity());
    take(out.logits, answers_, at_.logits, tokens);
    take(out.ranks, answers_, at_.ranks, query_.ranks ? tokens : 0);
    const std::size_t nodes = query_.rejections ? rows : 0;
    take(out.bonus, answers_, at_.bonus, nodes);
    take(out.bonus_logits, answers_, at_.bonus_logits, nodes);
    if (sampled_) {
        take(out.choices, answers_, at_.choices, rows);
        take(out.choice_logits, answers_, at_.choice_logits, rows);
    } else {
        out.choices.resize(rows);
        out.choice_logits.resize(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            out.choices[r] = out.best_ids[r * width];
            out.choice_logits[r] = out.best_logits[r * width];
        }
    }
    out.width = width_;
    take(out.masses, answers_, at_.masses, masses_ ? numel(trees_, width_) : 0);
    if (!masses_) return;
    for (const int tree : no_sets_) std::fill_n(out.masses.begin() + row_offset(tree, width_), width_, 0.0f);
}

Rows<const float> DeviceLogits::rows(int first, int count) {
    if (backend_->is_host()) return {data() + numel(first, columns_), count, columns_};
    if (host_.size() < numel(rows_, columns_)) host_.resize(numel(rows_, columns_));
    bool waiting = false;
    const std::lock_guard lock(backend_->submit_mutex());
    for (int r = first; r < first + count; ++r) {
        if (here_[r] != 0) continue;
        const std::size_t at = numel(r, columns_);
        backend_->download(host_.data() + at, data() + at, columns_ * sizeof(float));
        here_[r] = 1;
        waiting = true;
    }
    if (waiting) (void)backend_->synchronize();  // the error persists and fails the next forward pass
    return {host_.data() + numel(first, columns_), count, columns_};
}

}  // namespace draftscope
