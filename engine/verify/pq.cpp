#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/verify/tree_path.h"
#include "engine/verify/verify.h"
#include "kernels/exp_sums.h"

namespace draftscope {
namespace {

constexpr std::size_t block = 512;

/// The target's distribution after a node while drafts are tried: p, then the residual after each rejection.
/// Before the first rejection only the requested tokens are computed. Weights are not normalised; `sum` is
/// their total.
class Residual {
  public:
    Residual(const kernels::Exec& exec, const TreeLogits& rows, const TargetSample& choice, int node,
             AcceptScratch& scratch)
        : exec_(exec),
          rows_(rows),
          choice_(choice),
          logits_(rows.logits.row(node)),
          weights_(scratch.weights),
          rest_(scratch.rest),
          sums_(scratch.sums),
          rest_sums_(scratch.rest_sums) {
        weights_.clear();
    }

    double probability(TokenId token) const {
        const auto i = static_cast<std::size_t>(token);
        if (weights_.empty())
            return static_cast<double>(target_probability(choice_, rows_.sampling, logits_[i]));
        return sum_ > 0 ? static_cast<double>(weights_[i]) / sum_ : 0.0;
    }
    /// p := norm(max(0, p - q)), where q is `left` / left_sum. If rounding leaves nothing, p stays.
    void subtract(const DraftDistribution& q, std::span<const float> left, double left_sum) {
        fill();
        const auto scale = static_cast<float>(sum_ / left_sum);
        rest_ = weights_;
        if (q.ids.empty()) {
            float* rest = rest_.data();
            for (std::size_t i = 0; i < left.size(); ++i) {
                const float over = rest[i] - left[i] * scale;
                rest[i] = over > 0 ? over : 0.0f;
            }
        } else {
            for (std::size_t i = 0; i < left.size(); ++i) {
                float& weight = rest_[q.ids[i]];
                weight = std::max(0.0f, weight - left[i] * scale);
            }
        }
        replace();
    }
    /// Subtracts a draft with q = 1.
    void subtract(TokenId token) {
        fill();
        rest_ = weights_;
        rest_[token] = 0;
        replace();
    }
    /// Samples by inverse CDF in id order.
    TokenId draw(double uniform) {
        fill();
        const double target = uniform * sum_;
        // Here and below, the last token with any weight takes the rounding remainder.
        std::size_t chosen_block = 0;
        double before = 0, seen = 0;
        for (std::size_t b = 0; b < sums_.size(); ++b) {
            if (sums_[b] > 0 && seen <= target) {
                chosen_block = b;
                before = seen;
            }
            seen += sums_[b];
        }
        std::size_t chosen = weights_.size();
        const std::size_t end = std::min(weights_.size(), (chosen_block + 1) * block);
        for (std::size_t i = chosen_block * block; i < end; ++i) {
            if (weights_[i] <= 0) continue;
            if (chosen != weights_.size() && before > target) break;
            chosen = i;
            before += static_cast<double>(weights_[i]);
        }
        // A row without any weight gives token 0, as in sample_tokens().
        return chosen == weights_.size() ? 0 : static_cast<TokenId>(chosen);
    }

  private:
    void fill() {
        if (!weights_.empty()) return;
        rest_.resize(logits_.size());
        if (std::isinf(choice_.min_logit)) {
            const float inverse = inverse_temperature(rows_.sampling);
            kernels::exp_row(exec_, logits_, choice_.log_norm / inverse, inverse, rest_);
        } else {
            for (std::size_t i = 0; i < logits_.size(); ++i)
                rest_[i] = target_probability(choice_, rows_.sampling, logits_[i]);
        }
        replace();
    }
    void replace() {
        rest_sums_.resize((rest_.size() + block - 1) / block);
        double sum = 0;
        for (std::size_t b = 0; b < rest_sums_.size(); ++b) {
            rest_sums_[b] = sum_probabilities(std::span<const float>(rest_).subspan(b * block).first(
                std::min(block, rest_.size() - b * block)));
            sum += rest_sums_[b];
        }
        if (sum <= 0 && !weights_.empty()) return;
        std::swap(weights_, rest_);
        std::swap(sums_, rest_sums_);
        sum_ = sum;
    }

    const kernels::Exec& exec_;
    const TreeLogits& rows_;
    const TargetSample& choice_;
    std::span<const float> logits_;
    std::vector<float>&weights_, &rest_;
    std::vector<double>&sums_, &rest_sums_;  ///< block sums of both
    double sum_ = 0;
};

/// The remaining part of q while its samples are rejected.
class RemainingDraftProbs {
  public:
    RemainingDraftProbs(const DraftDistribution& q, AcceptScratch& scratch) : q_(q), left_(scratch.left) {
        left_.clear();
    }

    /// Returns the probability of `token`, a sample of q.
    double probability(TokenId token) const {
        const std::size_t i = find_index(token);
        return static_cast<double>(probs()[i]) / sum_;
    }
    std::span<const float> probs() const { return left_.empty() ? q_.probs : left_; }
    double sum() const { return sum_; }
    void subtract(TokenId token) {
        if (left_.empty()) left_ = q_.probs;
        left_[find_index(token)] = 0;
        sum_ = 0;
        for (std::size_t at = 0; at < left_.size(); at += block)
            sum_ += sum_probabilities(
                std::span<const float>(left_).subspan(at).first(std::min(block, left_.size() - at)));
    }

  private:
    std::size_t find_index(TokenId token) const {
        if (q_.ids.empty()) return static_cast<std::size_t>(token);
        const auto found = std::find(q_.ids.begin(), q_.ids.end(), token);
        assert(found != q_.ids.end());
        return static_cast<std::size_t>(found - q_.ids.begin());
    }

    const DraftDistribution& q_;
    std::vector<float>& left_;  ///< empty = all of q
    double sum_ = 1;
};

/// Tries the children of `node` in sampling order. Returns the accepted one, or -1 with the bonus sampled
/// from the residual.
int try_children(const kernels::Exec& exec, const DraftTree& tree, const TreeLogits& rows,
                 const TokenPosition& place, int node, const TargetSample& choice, AcceptScratch& scratch,
                 TokenId& bonus) {
    const auto n = static_cast<std::size_t>(node);
    const std::int64_t position = place.position + tree.depths[n];
    const std::uint64_t seed = rows.sampling.seed;
    const DraftDistribution* q =
        tree.child_distributions.empty() ? nullptr : tree.child_distributions[n].get();
    std::optional<RemainingDraftProbs> left;
    if (q != nullptr) left.emplace(*q, scratch);
    Residual residual(exec, rows, choice, node, scratch);
    int order = 0;
    for (std::size_t i = n + 1; i < tree.tokens.size(); ++i) {
        if (tree.parents[i] != node) continue;
        const TokenId token = tree.tokens[i];
        const double uniform = accept_uniform(seed, place.sequence, position, order++);
        const double share = left ? left->probability(token) : 1.0;
        if (uniform * share < residual.probability(token)) return static_cast<int>(i);
        if (left) {
            residual.subtract(*q, left->probs(), left->sum());
            left->subtract(token);
        } else {
            residual.subtract(token);
        }
    }
    // Without drafts this equals the target's own sample, with the same random number.
    bonus = order == 0
                ? choice.token
                : residual.draw(token_uniform(seed, place.sequence, static_cast<std::uint64_t>(position)));
    return -1;
}

}  // namespace

void accept_pq(const kernels::Exec& exec, const DraftTree& tree, const TreeLogits& rows,
               const TokenPosition& place, std::span<TargetSample> choices, AcceptScratch& scratch,
               Acceptance& out) {
    assert(choices.size() == tree.tokens.size() && rows.sampling.temperature > 0);
    out.path.clear();
    for (int node = 0; node >= 0;) {
        out.path.push_back(node);
        node = try_children(exec, tree, rows, place, node, choices[node], scratch, out.bonus);
    }
    emit_path(tree, rows, out, choices);
}

void accept_pq(const DraftTree& tree, const TreeVerdictInputs& verdict, std::span<TargetSample> choices,
               Acceptance& out) {
    assert(choices.size() == tree.tokens.size() && verdict.accepted.size() == choices.size());
    out.path.clear();
    for (int node = 0; node >= 0;) {
        out.path.push_back(node);
        const auto n = static_cast<std::size_t>(node);
        int next = -1, order = verdict.accepted[n];
        for (std::size_t i = n + 1; order >= 0 && i < tree.tokens.size(); ++i)
            if (tree.parents[i] == node && order-- == 0) next = static_cast<int>(i);
        node = next;
    }
    const auto last = static_cast<std::size_t>(out.path.back());
    if (verdict.bonus[last] != no_token)
        emit(verdict, verdict.bonus[last], verdict.bonus_logits[last], choices[last]);
    out.bonus = choices[last].token;
    emit_drafts(tree, verdict, out.path, choices);
}

}  // namespace draftscope
