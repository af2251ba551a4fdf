#include "kernels/cpu/tree_ops.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/numel.h"

namespace draftscope::kernels {
namespace {

/// A child must not score above its parent, or reranking could keep the child alone. Positive values from
/// rounding become zero; NaN becomes -inf.
float clean_logprob(float value) {
    if (std::isnan(value)) return -std::numeric_limits<float>::infinity();
    return std::min(value, 0.0f);
}

/// A candidate that is not a number stays, so that it is reported.
bool is_below_limits(const BeamOp& op, float logprob, float score) {
    return std::isfinite(logprob) && (logprob < op.min_logprob || score < op.min_score);
}

}  // namespace

/// Sets order_ to the `keep` best of `count` candidates, best first, ties to the earlier one.
void TreeOps::keep_best(const float* scores, int count, int keep) {
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0);
    std::partial_sort(order_.begin(), order_.begin() + keep, order_.end(), [scores](int a, int b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    order_.resize(keep);
}

/// Appends the level's candidates to the pool.
void TreeOps::add_candidates(const BeamOp& op) {
    scores_.clear();
    rows_.clear();
    const bool is_static = op.static_mask != nullptr;
    for (int r = 0; r < op.rows; ++r) {
        const int complete = is_static && op.level > 0 ? op.static_rows[r] : r;
        const int from = op.shared_logits ? 0 : r;
        const std::ptrdiff_t first = numel(from, op.k), offset = numel(complete, op.k);
        const float above = op.level == 0 ? 0.0f : op.scores[r];
        for (int c = 0; c < op.k && op.ids[first + c] >= 0; ++c) {
            if (is_static && op.static_mask[offset + c] == 0) continue;
            const float logsumexp = op.sampled ? 0.0f : op.logsumexp[from];
            const float logprob = clean_logprob(op.logits[first + c] - logsumexp);
            const float step_score = is_static ? 0.0f : op.sampled ? -1.0f - static_cast<float>(c) : logprob;
            if (is_below_limits(op, logprob, above + step_score)) continue;
            const int index = static_cast<int>(scores_.size());
            const std::int32_t id = op.ids[first + c];
            op.pool_tokens[index] = op.tokens == nullptr ? id : op.tokens[id];
            op.pool_logprobs[index] = logprob;
            op.pool_scores[index] = above + step_score;
            op.pool_parents[index] = op.level == 0 ? -1 : op.row_indices[r];
            if (op.pool_rows != nullptr) op.pool_rows[index] = -1;
            scores_.push_back(above + step_score);
            rows_.push_back(r);
            if (!is_static) continue;
            const auto end = static_cast<std::size_t>(offset) + c + 1;
            if (pool_indices_.size() < end) pool_indices_.resize(end, -1);
            pool_indices_[end - 1] = index;
        }
    }
}

/// Sets order_ to the candidates that become the next level's rows.
void TreeOps::choose_next(const BeamOp& op) {
    list_next(op);
    std::erase_if(order_, [&](int index) { return op.pool_logprobs[index] < op.min_next_logprob; });
}

/// As choose_next(), without min_next_logprob.
void TreeOps::list_next(const BeamOp& op) {
    const int count = static_cast<int>(scores_.size());
    if (op.static_next == nullptr) {
        const int keep = std::min(op.keep, count);
        if (op.level > 0) return keep_best(scores_.data(), count, keep);
        order_.resize(keep);
        std::iota(order_.begin(), order_.end(), 0);
        return;
    }
    order_.clear();
    next_static_.clear();
    for (int i = 0; i < op.keep; ++i) {
        const std::size_t offset = op.static_next[i];
        if (offset >= pool_indices_.size() || pool_indices_[offset] < 0) continue;
        order_.push_back(pool_indices_[offset]);
        next_static_.push_back(i);
    }
}

void TreeOps::beam(const BeamOp& op) {
    pool_indices_.clear();
    add_candidates(op);
    choose_next(op);
    const int next = static_cast<int>(order_.size());
    op.counts[0] = static_cast<std::int32_t>(scores_.size());
    op.counts[1] = next;
    for (int b = 0; b < next; ++b) {
        const int index = order_[b], row = rows_[index];
        op.scores[b] = scores_[index];
        op.next_tokens[b] = op.pool_tokens[index];
        op.next_rows[b] = op.first_row + row;
        op.row_indices[b] = op.first_index + index;
        if (op.pool_rows != nullptr) op.pool_rows[index] = op.next_first_row + b;
        if (op.static_next != nullptr) op.static_rows[b] = next_static_[b];
        std::int32_t* slots = op.next_ancestor_slots + numel(b, op.level + 1);
        if (op.level > 0) std::copy_n(op.ancestor_slots + numel(row, op.level), op.level, slots);
        slots[op.level] = op.first_slot + b;
    }
}

void TreeOps::rerank(const RerankOp& op) {
    const TreeRows& rows = op.rows;
    keep_best(op.pool_scores, op.candidates, std::min(op.candidates, op.nodes - 1));
    // In both orders parents precede their children.
    if (!op.by_score) std::sort(order_.begin(), order_.end());
    node_.assign(op.candidates, -1);
    const int chosen = static_cast<int>(order_.size());
    for (int node = 0; node < op.nodes; ++node) {
        const bool missing = node > chosen;
        const int index = node == 0 || missing ? -1 : order_[node - 1];
        const int above = missing                                   ? node
                          : index < 0 || op.pool_parents[index] < 0 ? 0
                                                                    : node_[op.pool_parents[index]];
        // A parent scores no less than its child and has a smaller index, so it was chosen, too.
        assert(above >= 0);
        const std::int64_t r = op.first_row + node, parent = op.first_row + above;
        const int depth = node == 0 ? 0 : missing ? 1 : rows.ancestor_counts[parent];
        assert(depth < rows.width);
        if (index >= 0) node_[index] = node;
        rows.tokens[r] = node == 0 ? op.root : missing ? 0 : op.pool_tokens[index];
        rows.parents[r] = static_cast<std::int32_t>(parent);
        rows.logprobs[r] = index < 0 ? 0.0f : op.pool_logprobs[index];
        rows.positions[r] = op.first_position + depth;
        rows.ancestor_counts[r] = depth + 1;
        std::int32_t* slots = rows.ancestor_slots + r * rows.width;
        if (missing)
            slots[0] = op.first_slot;
        else if (depth > 0)
            std::copy_n(rows.ancestor_slots + parent * rows.width, depth, slots);
        slots[depth] = op.first_slot + node;
        if (rows.sampled_rows != nullptr)
            rows.sampled_rows[r] = node == 0 ? op.root_row : missing ? -1 : op.pool_rows[index];
        if (rows.uniforms != nullptr) rows.uniforms[r] = op.uniforms[depth];
    }
}

}  // namespace draftscope::kernels
