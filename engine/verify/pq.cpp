#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "engine/verify/verify.h"
#include "engine/verify/walk.h"

namespace draftscope {
namespace {

/// The target's distribution after a node while drafts are tried against it: p at first, then what is left of
/// it after each rejection. Weights need not add up to 1; `sum` says what they add up to.
class Residual {
  public:
    Residual(const VerifyRows& rows, const TargetChoice& choice, int node) {
        const std::span<const float> logits = rows.logits.row(node);
        weights_.resize(logits.size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
            weights_[i] = static_cast<double>(probability_of(choice, rows.sampling, logits[i]));
            sum_ += weights_[i];
        }
    }
    double probability(TokenId token) const {
        return sum_ > 0 ? weights_[static_cast<std::size_t>(token)] / sum_ : 0.0;
    }
    /// p := norm(max(0, p - q)). Nothing left, which only rounding can bring about: p stays.
    void take_out(const DraftDistribution& q, const std::vector<double>& left, double left_sum) {
        std::vector<double> rest(weights_);
        for (double& weight : rest) weight /= sum_;
        for (std::size_t i = 0; i < left.size(); ++i)
            if (left[i] > 0) {
                double& weight = rest[static_cast<std::size_t>(q.id_at(i))];
                weight = std::max(0.0, weight - left[i] / left_sum);
            }
        replace(std::move(rest));
    }
    /// A draft that was certain: q has all its mass on it.
    void take_out(TokenId token) {
        std::vector<double> rest(weights_);
        rest[static_cast<std::size_t>(token)] = 0;
        replace(std::move(rest));
    }
    /// Inverse CDF in id order.
    TokenId draw(double uniform) const {
        const double target = uniform * sum_;
        double before = 0;
        std::size_t chosen = weights_.size();
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            if (weights_[i] <= 0) continue;
            if (chosen != weights_.size() && before > target) break;
            chosen = i;
            before += weights_[i];
        }
        return static_cast<TokenId>(chosen);
    }

  private:
    void replace(std::vector<double> rest) {
        double sum = 0;
        for (const double weight : rest) sum += weight;
        if (sum <= 0) return;
        weights_ = std::move(rest);
        sum_ = sum;
    }

    std::vector<double> weights_;
    double sum_ = 0;
};

/// Tries the children of `node` in the order in which they were drawn. Returns the accepted one, or -1 with
/// the bonus drawn from what is left.
int try_children(const DraftTree& tree, const VerifyRows& rows, const TokenPlace& place, int node,
                 const TargetChoice& choice, TokenId& bonus) {
    const auto n = static_cast<std::size_t>(node);
    const std::int64_t position = place.position + tree.depths[n];
    const std::uint64_t seed = rows.sampling.seed;
    const DraftDistribution* q = tree.drawn_from.empty() ? nullptr : tree.drawn_from[n].get();
    std::vector<double> left;
    double left_sum = 0;
    if (q != nullptr) {
        left.assign(q->probs.begin(), q->probs.end());
        left_sum = std::accumulate(left.begin(), left.end(), 0.0);
    }
    Residual residual(rows, choice, node);
    int order = 0;
    for (std::size_t i = n + 1; i < tree.tokens.size(); ++i) {
        if (tree.parents[i] != node) continue;
        const TokenId token = tree.tokens[i];
        const double uniform = accept_uniform(seed, place.sequence, position, order++);
        const double p = residual.probability(token);
        if (q == nullptr) {
            if (uniform < p) return static_cast<int>(i);
            residual.take_out(token);
            continue;
        }
        std::size_t index = 0;
        while (index < left.size() && q->id_at(index) != token) ++index;
        assert(index < left.size() && left_sum > 0);
        if (uniform * left[index] / left_sum < p) return static_cast<int>(i);
        residual.take_out(*q, left, left_sum);
        left[index] = 0;
        left_sum = std::accumulate(left.begin(), left.end(), 0.0);
    }
    // Without drafts this is the target's own draw, number for number.
    bonus = order == 0
                ? choice.token
                : residual.draw(token_uniform(seed, place.sequence, static_cast<std::uint64_t>(position)));
    return -1;
}

}  // namespace

Acceptance accept_pq(const DraftTree& tree, const VerifyRows& rows, const TokenPlace& place,
                     std::span<TargetChoice> choices) {
    assert(choices.size() == tree.tokens.size() && rows.sampling.temperature > 0);
    Acceptance result;
    for (int node = 0; node >= 0;) {
        result.path.push_back(node);
        node = try_children(tree, rows, place, node, choices[static_cast<std::size_t>(node)], result.bonus);
    }
    emit_path(tree, rows, result, choices);
    return result;
}

}  // namespace draftscope
