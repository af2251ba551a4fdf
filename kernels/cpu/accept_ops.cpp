#include "kernels/cpu/accept_ops.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/cpu/probabilities.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/threads/split.h"

namespace draftscope::kernels {
namespace {

constexpr std::size_t block = probability_block;

/// The target's distribution after a node while drafts are tried: p, then the residual after each rejection.
/// Before the first rejection only the requested tokens are computed. Weights are not normalised; `sum` is
/// their total.
class ResidualProbs {
  public:
    ResidualProbs(const ThreadPool& pool, std::span<const float> logits, const RowDistribution& row,
                  std::vector<float>& weights, std::vector<float>& rest, std::vector<double>& sums,
                  std::vector<double>& rest_sums)
        : pool_(pool),
          logits_(logits),
          row_(row),
          weights_(weights),
          rest_(rest),
          sums_(sums),
          rest_sums_(rest_sums) {
        weights_.clear();
    }

    double probability(std::int32_t token) const {
        if (weights_.empty()) return static_cast<double>(row_.probability(logits_[token]));
        return sum_ > 0 ? static_cast<double>(weights_[token]) / sum_ : 0.0;
    }
    /// p := norm(max(0, p - q / q_sum)). If rounding leaves nothing, p stays.
    void subtract(const DraftProbs& q, double q_sum) {
        fill();
        const auto scale = static_cast<float>(sum_ / q_sum);
        rest_ = weights_;
        if (q.ids.empty()) {
            float* rest = rest_.data();
            for (std::size_t i = 0; i < q.probs.size(); ++i) {
                const float over = rest[i] - q.probs[i] * scale;
                rest[i] = over > 0 ? over : 0.0f;
            }
        } else {
            for (std::size_t i = 0; i < q.probs.size(); ++i) {
                float& weight = rest_[q.ids[i]];
                weight = std::max(0.0f, weight - q.probs[i] * scale);
            }
        }
        replace();
    }
    /// Subtracts a draft with q = 1.
    void subtract(std::int32_t token) {
        fill();
        rest_ = weights_;
        rest_[token] = 0;
        replace();
    }
    /// Samples by inverse CDF in id order. A row without any weight gives token 0.
    std::int32_t draw(double uniform) {
        fill();
        const double target = uniform * sum_;
        auto [chosen_block, before] = find_block(std::span<const double>(sums_), target);
        // The last token with any weight takes the rounding remainder.
        std::size_t chosen = weights_.size();
        const std::size_t end = std::min(weights_.size(), (chosen_block + 1) * block);
        for (std::size_t i = chosen_block * block; i < end; ++i) {
            if (weights_[i] <= 0) continue;
            if (chosen != weights_.size() && before > target) break;
            chosen = i;
            before += static_cast<double>(weights_[i]);
        }
        return chosen == weights_.size() ? 0 : static_cast<std::int32_t>(chosen);
    }

  private:
    void fill() {
        if (!weights_.empty()) return;
        rest_.resize(logits_.size());
        if (std::isinf(row_.min_logit)) {
            exp_row(pool_, logits_, row_.log_norm / row_.inv_temperature, row_.inv_temperature, rest_);
        } else {
            for (std::size_t i = 0; i < logits_.size(); ++i) rest_[i] = row_.probability(logits_[i]);
        }
        replace();
    }
    void replace() {
        rest_sums_.clear();
        double sum = 0;
        visit_block_sums(rest_, [&](double part) {
            rest_sums_.push_back(part);
            sum += part;
        });
        if (sum <= 0 && !weights_.empty()) return;
        std::swap(weights_, rest_);
        std::swap(sums_, rest_sums_);
        sum_ = sum;
    }

    const ThreadPool& pool_;
    std::span<const float> logits_;
    RowDistribution row_;
    std::vector<float>&weights_, &rest_;
    std::vector<double>&sums_, &rest_sums_;
    double sum_ = 0;
};

/// The remaining part of q while its samples are rejected.
class RemainingDraftProbs {
  public:
    RemainingDraftProbs(const RejectionSampleOp& op, const RejectionNode& node)
        : q_{{op.probs + node.first_prob, static_cast<std::size_t>(node.support)}} {
        if (node.first_id >= 0) q_.ids = {op.ids + node.first_id, q_.probs.size()};
    }

    const DraftProbs& probs() const { return q_; }
    double sum() const { return sum_; }
    /// Returns the probability of `token`, a sample of q.
    double probability(std::int32_t token) const {
        return static_cast<double>(q_.probs[find_index(token)]) / sum_;
    }
    void subtract(std::int32_t token) {
        q_.probs[find_index(token)] = 0;
        sum_ = 0;
        visit_block_sums(q_.probs, [&](double part) { sum_ += part; });
    }

  private:
    std::size_t find_index(std::int32_t token) const {
        if (q_.ids.empty()) return token;
        const auto found = std::find(q_.ids.begin(), q_.ids.end(), token);
        assert(found != q_.ids.end());
        return found - q_.ids.begin();
    }

    DraftProbs q_;
    double sum_ = 1;
};

}  // namespace

void AcceptOps::Residual::reserve(std::size_t vocab) {
    for (auto* values : {&weights, &rest}) values->reserve(vocab);
    for (auto* values : {&sums, &rest_sums}) values->reserve(vocab / block + 1);
}

void AcceptOps::follow_argmax(const FollowArgmaxOp& op) {
    int count = 1;
    op.path[0] = 0;
    // Children follow their parent, so one pass over the nodes finds the path.
    for (int node = 1; node < op.nodes && count < op.max_count; ++node) {
        const std::int64_t row = op.first_row + node, parent = op.first_row + op.path[count - 1];
        if (op.rows.parents[row] != parent) continue;
        if (op.choices != nullptr && op.rows.tokens[row] != op.choices[parent * op.choice_stride]) continue;
        op.path[count++] = node;
    }
    *op.count = count;
}

void AcceptOps::list_children(const ListChildrenOp& op) {
    for (int n = 0; n < op.nodes; ++n) {
        const int row = op.first_row + n, depth = op.rows.ancestor_counts[row] - 1;
        const std::int64_t first = std::int64_t{row} * op.max_count;
        int count = 0;
        for (int i = n + 1; i < op.nodes && count < op.max_count; ++i) {
            if (op.rows.parents[op.first_row + i] != row) continue;
            op.children[first + count] = i;
            op.drafts[first + count] = op.rows.tokens[op.first_row + i];
            op.draft_uniforms[first + count] = op.uniforms[std::int64_t{depth} * op.max_count + count];
            ++count;
        }
        const int from = op.rows.sampled_rows[row];
        RejectionNode& node = op.out[row];
        node = {};
        node.row = row;
        node.first_draft = static_cast<std::int32_t>(first);
        node.drafts = count;
        node.support = op.support;
        node.first_id = op.first_id;
        node.uniform = op.rows.uniforms[row];
        if (count == 0) continue;
        if (from < 0) {
            node.support = 0;
            node.first_id = -1;
            continue;
        }
        node.first_prob = from * op.stride;
        if (op.id_stride != 0) node.first_id += from * op.id_stride;
        if (op.sizes != nullptr) node.support = op.sizes[from];
    }
}

void AcceptOps::follow_accepted(const FollowAcceptedOp& op) {
    int at = 0, count = 0;
    while (true) {
        op.path[count++] = at;
        const std::int64_t row = op.first_row + at;
        const int accepted_child = op.accepted[row];
        if (accepted_child < 0 || count == op.width) break;
        at = op.children[row * op.max_count + accepted_child];
    }
    *op.count = count;
}

/// Tries the drafts of a node in sampling order, and writes the node's results.
void AcceptOps::try_drafts(const ThreadPool& pool, const RejectionSampleOp& op, int index,
                           Residual& scratch) {
    const RejectionNode& node = op.nodes[index];
    const float* logits = op.logits + node.row * op.stride;
    const RowDistribution row{op.inv_temperature, op.log_norm[node.row],
                              min_logit_of(op.min_logit, node.row)};
    ResidualProbs residual(pool, {logits, static_cast<std::size_t>(op.vocab)}, row, scratch.weights,
                           scratch.rest, scratch.sums, scratch.rest_sums);
    const bool certain = node.support == 0;
    RemainingDraftProbs left(op, node);
    op.accepted[index] = -1;
    op.bonus[index] = -1;
    op.bonus_logits[index] = 0;
    for (int i = 0; i < node.drafts; ++i) {
        const std::int32_t token = op.drafts[node.first_draft + i];
        const double share = certain ? 1.0 : left.probability(token);
        if (op.uniforms[node.first_draft + i] * share < residual.probability(token)) {
            op.accepted[index] = i;
            return;
        }
        if (certain) {
            residual.subtract(token);
        } else {
            residual.subtract(left.probs(), left.sum());
            left.subtract(token);
        }
    }
    // Without drafts the target's own sample stands, which used the same random number.
    if (node.drafts == 0) return;
    op.bonus[index] = residual.draw(node.uniform);
    op.bonus_logits[index] = logits[op.bonus[index]];
}

void AcceptOps::rejection_sample(ThreadPool& pool, const RejectionSampleOp& op) {
    residuals_.resize(std::max(residuals_.size(), static_cast<std::size_t>(pool.threads())));
    split_range(pool, op.count, std::int64_t{op.count} * op.vocab, [&](int thread, int begin, int end) {
        for (int i = begin; i < end; ++i) try_drafts(pool, op, i, residuals_[thread]);
    });
}

void AcceptOps::sample_and_follow(ThreadPool& pool, const RejectionSampleOp& op,
                                  std::span<const ListChildrenOp> lists,
                                  std::span<const FollowAcceptedOp> paths) {
    residuals_.resize(std::max(residuals_.size(), paths.size()));
    for (Residual& residual : residuals_) residual.reserve(op.vocab);
    run_threads(pool, static_cast<int>(paths.size()), [&](int tree) {
        list_children(lists[tree]);
        const FollowAcceptedOp& follow = paths[tree];
        std::fill_n(op.accepted + follow.first_row, lists[tree].nodes, -1);
        std::fill_n(op.bonus + follow.first_row, lists[tree].nodes, -1);
        std::fill_n(op.bonus_logits + follow.first_row, lists[tree].nodes, 0.0f);
        for (int node = 0; node >= 0;) {
            const std::int64_t row = follow.first_row + node;
            try_drafts(pool, op, static_cast<int>(row), residuals_[tree]);
            const int accepted_child = op.accepted[row];
            node = accepted_child < 0 ? -1 : follow.children[row * follow.max_count + accepted_child];
        }
        follow_accepted(follow);
    });
}

/// Works level by level, because an entropy may cost a pass over the vocabulary, and most nodes descend from
/// a rejected one.
void AcceptOps::accept_typical(ThreadPool& pool, const AcceptTypicalOp& op, const EntropyOp* entropy_op) {
    const TreeRows& rows = op.rows;
    const int nodes = op.nodes, first = op.first_row;
    inner_.assign(nodes, 0);
    accepted_.assign(nodes, 0);
    thresholds_.assign(nodes, 0.0);
    likelihoods_.assign(nodes, 0.0);
    frontier_.reserve(nodes);
    for (int i = 1; i < nodes; ++i) inner_[rows.parents[first + i] - first] = 1;
    const auto distribution = [&](int node) {
        return RowDistribution{op.inv_temperature, op.log_norm[first + node],
                               min_logit_of(op.min_logit, first + node)};
    };
    const auto set_threshold = [&](int index) {
        const int node = frontier_[index];
        const double h = entropy_op == nullptr
                             ? static_cast<double>(op.entropies[first + node])
                             : entropy({entropy_op->logits + (first + node) * entropy_op->stride,
                                        static_cast<std::size_t>(entropy_op->vocab)},
                                       distribution(node));
        thresholds_[node] = std::min(op.epsilon, op.delta * std::exp(-h));
    };
    accepted_[0] = 1;
    frontier_.assign(1, 0);
    int best = 0;
    for (int depth = rows.ancestor_counts[first] + 1; !frontier_.empty(); ++depth) {
        std::erase_if(frontier_, [&](int node) { return inner_[node] == 0; });
        const int count = static_cast<int>(frontier_.size());
        if (entropy_op != nullptr && count > 1)
            pool.parallel(count, set_threshold);
        else
            for (int i = 0; i < count; ++i) set_threshold(i);
        frontier_.clear();
        for (int i = 1; i < nodes; ++i) {
            const int parent = rows.parents[first + i] - first;
            // A missing candidate is its own parent.
            if (rows.ancestor_counts[first + i] != depth || parent == i || accepted_[parent] == 0) continue;
            const auto p = static_cast<double>(distribution(parent).probability(op.draft_logits[first + i]));
            if (!(p > thresholds_[parent])) continue;
            accepted_[i] = 1;
            frontier_.push_back(i);
            likelihoods_[i] = likelihoods_[parent] + std::log(p);
            if (rows.ancestor_counts[first + best] < depth || likelihoods_[i] > likelihoods_[best]) best = i;
        }
    }
    const int count = rows.ancestor_counts[first + best] - rows.ancestor_counts[first] + 1;
    for (int at = best, i = count - 1; i >= 0; --i) {
        op.path[i] = at;
        at = rows.parents[first + at] - first;
    }
    *op.count = count;
}

}  // namespace draftscope::kernels
