#include "engine/transformer/device_logits.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/numel.h"

namespace draftscope {
namespace {

std::size_t cells(int rows, int cols) {
    return numel(rows, cols);
}

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
           kernels::can_topk(query.vocab, std::min(query.best, query.vocab));
}

bool DeviceLogits::reserve(kernels::Device& device, int rows, int columns) {
    device_ = &device;
    rows_ = rows;
    columns_ = columns;
    here_.assign(rows, 0);
    return logits_.reserve(device, cells(rows, columns) * sizeof(float));
}

/// Computes the positions of the results and reserves memory for them.
bool DeviceLogits::lay_out(const LogitsQuery& query) {
    assert(can_answer(query));
    best_ = std::clamp(query.best, 1, query.vocab);
    tokens_ = query.drafts ? rows_ : 0;
    const std::size_t rows = rows_, tokens = tokens_;
    at_.best_ids = 0;
    at_.best_logits = cells(rows_, best_);
    at_.choices = 2 * at_.best_logits;
    at_.choice_logits = at_.choices + rows;
    at_.log_norm = at_.choice_logits + rows;
    at_.lowest = at_.log_norm + rows;
    at_.last = at_.lowest + rows;
    at_.entropies = at_.last + rows;
    at_.logits = at_.entropies + rows;
    at_.ranks = at_.logits + tokens;
    at_.masses = at_.ranks + tokens;
    at_.accepted = at_.masses + rows;
    residual_nodes_ = query.residuals ? rows_ : 0;
    at_.end = at_.accepted + cells(3, residual_nodes_);
    const std::size_t scratch = kernels::topk_scratch_bytes(rows_, query.vocab, best_);
    return d_answers_.resize_at_least(*device_, at_.end) && scratch_.resize_at_least(*device_, scratch);
}

/// Enqueues best tokens and choices; `uniforms` null = the best tokens are the choices.
void DeviceLogits::enqueue_choices(const LogitsQuery& query, const double* uniforms) {
    auto* ints = d_answers_.as<std::int32_t>();
    auto* floats = d_answers_.as<float>();
    drawn_ = uniforms != nullptr;
    cut_ = drawn_ && (query.top_p < 1 || (query.top_k > 0 && query.top_k < query.vocab));
    entropies_ = query.entropies;
    kernels::TopKOp select;
    select.logits = data();
    select.stride = columns_;
    select.rows = rows_;
    select.support = query.vocab;
    select.k = best_;
    select.ids = ints + at_.best_ids;
    select.values = floats + at_.best_logits;
    // The norm of greedy rows is at temperature 1. For sampled rows, sampling overwrites this result.
    select.logsumexp = floats + (drawn_ ? at_.choice_logits : at_.log_norm);
    select.scratch = scratch_.as<void>();
    device_->topk(select);
    if (drawn_) enqueue_draws(query, uniforms);
    if (!entropies_) return;
    kernels::EntropyOp entropy;
    entropy.logits = data();
    entropy.stride = columns_;
    entropy.rows = rows_;
    entropy.vocab = query.vocab;
    entropy.inv_temperature = drawn_ ? query.scale : 1.0f;
    entropy.log_norm = floats + at_.log_norm;
    entropy.min_logit = cut_ ? floats + at_.lowest : nullptr;
    entropy.out = floats + at_.entropies;
    device_->entropy(entropy);
}

void DeviceLogits::enqueue_draws(const LogitsQuery& query, const double* uniforms) {
    auto* ints = d_answers_.as<std::int32_t>();
    auto* floats = d_answers_.as<float>();
    kernels::SampleOp draw;
    if (cut_) {
        device_->mask_top_k_top_p({data(), columns_, rows_, query.vocab, query.scale, query.top_k,
                                   query.top_p, floats + at_.lowest, ints + at_.last});
        draw.mask = {floats + at_.lowest, ints + at_.last};
    }
    draw.logits = data();
    draw.stride = columns_;
    draw.rows = rows_;
    draw.vocab = query.vocab;
    draw.inv_temperature = query.scale;
    draw.uniforms = uniforms;
    draw.tokens = ints + at_.choices;
    draw.values = floats + at_.choice_logits;
    draw.log_norm = floats + at_.log_norm;
    device_->sample(draw);
}

/// Enqueued after sampling, whose norms it reads. The memory for weights limits the nodes of one op; nodes
/// are independent.
bool DeviceLogits::enqueue_residuals(const LogitsQuery& query, TreeStep& step) {
    kernels::RejectionSampleOp op;
    step.enqueue_drafts(op);
    const std::size_t node_bytes = cells(1, query.vocab) * sizeof(float);
    const int max_count = std::clamp(static_cast<int>(max_weight_bytes / node_bytes), 1, residual_nodes_);
    if (!weights_.resize_at_least(*device_, cells(max_count, query.vocab))) return false;
    auto* floats = d_answers_.as<float>();
    auto* ints = d_answers_.as<std::int32_t>();
    const kernels::RejectionNode* nodes = op.nodes;
    op.logits = data();
    op.stride = columns_;
    op.vocab = query.vocab;
    op.inv_temperature = query.scale;
    op.log_norm = floats + at_.log_norm;
    op.min_logit = cut_ ? floats + at_.lowest : nullptr;
    op.weights = weights_.as<float>();
    for (int first = 0; first < residual_nodes_; first += max_count) {
        op.count = std::min(max_count, residual_nodes_ - first);
        op.nodes = nodes + first;
        op.accepted = ints + at_.accepted + first;
        op.bonus = op.accepted + residual_nodes_;
        op.bonus_logits = floats + at_.accepted + first + 2 * residual_nodes_;
        device_->rejection_sample(op);
    }
    return true;
}

void DeviceLogits::enqueue_download() {
    answers_.resize(at_.end);
    d_answers_.download(*device_, answers_);
}

bool DeviceLogits::enqueue_trees(const LogitsQuery& query, TreeStep& step, bool accept) {
    assert(step.rows() == rows_);
    if (!lay_out(query)) return false;
    const auto* ints = d_answers_.as<std::int32_t>();
    const kernels::TreeRows& trees = step.rows_on_device();
    enqueue_choices(query, trees.uniforms);
    if (query.drafts) enqueue_drafts(query, trees);
    if (query.residuals && !enqueue_residuals(query, step)) return false;
    if (accept && query.residuals) {
        step.enqueue_kept(ints + at_.accepted);
    } else if (accept && query.entropies) {
        assert(query.drafts && drawn_);
        const auto* floats = d_answers_.as<float>();
        kernels::AcceptTypicalOp op;
        op.inv_temperature = query.scale;
        op.epsilon = query.epsilon;
        op.delta = query.delta;
        op.draft_logits = floats + at_.logits;
        op.log_norm = floats + at_.log_norm;
        op.min_logit = cut_ ? floats + at_.lowest : nullptr;
        op.entropies = floats + at_.entropies;
        step.enqueue_typical(op);
    } else if (accept) {
        step.enqueue_acceptance(ints + (drawn_ ? at_.choices : at_.best_ids), drawn_ ? 1 : best_);
    }
    masses_ = step.has_sets();
    if (masses_) enqueue_masses(query, step);
    enqueue_download();
    return true;
}

/// Enqueues the logit and the rank of each row's token in its parent's row.
void DeviceLogits::enqueue_drafts(const LogitsQuery& query, const kernels::TreeRows& trees) {
    ranks_ = query.ranks;
    device_->rank({data(), columns_, query.vocab, tokens_, trees.parents, trees.tokens,
                   d_answers_.as<float>() + at_.logits,
                   ranks_ ? d_answers_.as<std::int32_t>() + at_.ranks : nullptr});
}

/// Enqueues the probability of each row's token set.
void DeviceLogits::enqueue_masses(const LogitsQuery& query, const TreeStep& step) {
    auto* floats = d_answers_.as<float>();
    kernels::SetProbabilityOp mass;
    mass.logits = data();
    mass.stride = columns_;
    mass.count = rows_;
    mass.inv_temperature = drawn_ ? query.scale : 1.0f;
    mass.log_norm = floats + at_.log_norm;
    mass.first = step.rows_on_device().set_first;
    mass.size = step.rows_on_device().set_size;
    mass.ids = step.set_ids();
    mass.out = floats + at_.masses;
    mass.min_logit = cut_ ? floats + at_.lowest : nullptr;
    device_->sum_set_probability(mass);
}

void DeviceLogits::collect(LogitsResult& out) {
    const std::size_t rows = rows_, tokens = tokens_;
    const std::size_t width = best_;
    out.best = best_;
    take(out.best_ids, answers_, at_.best_ids, rows * width);
    take(out.best_logits, answers_, at_.best_logits, rows * width);
    take(out.log_norm, answers_, at_.log_norm, rows);
    if (cut_)
        take(out.lowest, answers_, at_.lowest, rows);
    else
        out.lowest.assign(rows, -std::numeric_limits<float>::infinity());
    take(out.entropies, answers_, at_.entropies, entropies_ ? rows : 0);
    take(out.logits, answers_, at_.logits, tokens);
    take(out.ranks, answers_, at_.ranks, tokens > 0 && ranks_ ? tokens : 0);
    const std::size_t nodes = residual_nodes_;
    take(out.accepted, answers_, at_.accepted, nodes);
    take(out.bonus, answers_, at_.accepted + nodes, nodes);
    take(out.bonus_logits, answers_, at_.accepted + 2 * nodes, nodes);
    if (drawn_) {
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
    out.masses.assign(rows, 0.0f);
    if (masses_) take(out.masses, answers_, at_.masses, rows);
}

Rows<const float> DeviceLogits::rows(int first, int count) {
    if (device_->is_host()) return {data() + cells(first, columns_), count, columns_};
    if (host_.size() < cells(rows_, columns_)) host_.resize(cells(rows_, columns_));
    bool waiting = false;
    const std::lock_guard lock(device_->submit_mutex());
    for (int r = first; r < first + count; ++r) {
        if (here_[r] != 0) continue;
        const std::size_t at = cells(r, columns_);
        device_->download(host_.data() + at, data() + at, columns_ * sizeof(float));
        here_[r] = 1;
        waiting = true;
    }
    if (waiting) (void)device_->synchronize();  // the error persists and fails the next forward pass
    return {host_.data() + cells(first, columns_), count, columns_};
}

}  // namespace draftscope
