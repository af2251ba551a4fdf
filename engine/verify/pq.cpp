#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"
#include "kernels/exp_sums.h"

namespace draftscope {

extern const RuleInfo pq_info;

namespace {

constexpr std::size_t block = 512;

/// The target's distribution after a node while drafts are tried: p, then the residual after each rejection.
/// Before the first rejection only the requested tokens are computed. Weights are not normalised; `sum` is
/// their total.
class Residual {
  public:
    Residual(const TreeLogits& logits, int node, AcceptScratch& scratch)
        : exec_(logits.exec),
          sampling_(logits.sampling),
          choice_(logits.choices[node]),
          logits_(logits.rows.row(node)),
          weights_(scratch.weights),
          rest_(scratch.rest),
          sums_(scratch.sums),
          rest_sums_(scratch.rest_sums) {
        weights_.clear();
    }

    double probability(TokenId token) const {
        const std::size_t i = token;
        if (weights_.empty()) return static_cast<double>(target_probability(choice_, sampling_, logits_[i]));
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
            const float inverse = inverse_temperature(sampling_);
            kernels::exp_row(exec_, logits_, choice_.log_norm / inverse, inverse, rest_);
        } else {
            for (std::size_t i = 0; i < logits_.size(); ++i)
                rest_[i] = target_probability(choice_, sampling_, logits_[i]);
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
    const Sampling& sampling_;
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
        if (q_.ids.empty()) return token;
        const auto found = std::find(q_.ids.begin(), q_.ids.end(), token);
        assert(found != q_.ids.end());
        return found - q_.ids.begin();
    }

    const DraftDistribution& q_;
    std::vector<float>& left_;  ///< empty = all of q
    double sum_ = 1;
};

/// Tries the children of `node` in sampling order. Returns the accepted one, or -1 with the bonus sampled
/// from the residual.
int try_children(const DraftTree& tree, const TreeLogits& logits, int node, AcceptScratch& scratch,
                 TokenId& bonus) {
    const std::int64_t position = logits.position.position + tree.depths[node];
    const std::uint64_t seed = logits.sampling.seed, sequence = logits.position.sequence;
    const DraftDistribution* q =
        tree.child_distributions.empty() ? nullptr : tree.child_distributions[node].get();
    std::optional<RemainingDraftProbs> left;
    if (q != nullptr) left.emplace(*q, scratch);
    Residual residual(logits, node, scratch);
    int order = 0;
    for (int i = node + 1; i < tree.size(); ++i) {
        if (tree.parents[i] != node) continue;
        const TokenId token = tree.tokens[i];
        const double uniform = accept_uniform(seed, sequence, position, order++);
        const double share = left ? left->probability(token) : 1.0;
        if (uniform * share < residual.probability(token)) return i;
        if (left) {
            residual.subtract(*q, left->probs(), left->sum());
            left->subtract(token);
        } else {
            residual.subtract(token);
        }
    }
    // Without drafts this equals the target's own sample, with the same random number.
    bonus = order == 0 ? logits.choices[node].token
                       : residual.draw(token_uniform(seed, sequence, static_cast<std::uint64_t>(position)));
    return -1;
}

/// Returns the child that the device accepted after `node`; -1 = none.
int accepted_child(const DraftTree& tree, const TreeLogits& logits, int node) {
    const int index = logits.rejection_nodes[node];
    int order = index < 0 ? -1 : logits.answers->accepted[index];
    for (int i = node + 1; order >= 0 && i < tree.size(); ++i)
        if (tree.parents[i] == node && order-- == 0) return i;
    return -1;
}

/// Rejection sampling (Leviathan et al. 2023) in its form for trees sampled without replacement (EAGLE-1).
/// Tries a node's children in sampling order and accepts each with probability min(1, p/q). A rejection sets
/// p := norm(max(0, p - q)) and removes the draft from q. The bonus is sampled from the residual of p.
/// Without sampled drafts, q = 1. Requires temperature > 0.
class PqRule final : public AcceptanceRule {
  public:
    PqRule() : AcceptanceRule(pq_info) {}

    RuleNeeds needs() const override {
        return {.sampled_drafts = true,
                .one_thread = true,
                .draft_logits = true,
                .rejections = true,
                .device_path = true};
    }
    void accept(const DraftTree& tree, const TreeLogits& logits, AcceptScratch& scratch,
                Acceptance& out) const override {
        assert(logits.choices.size() == tree.tokens.size() && logits.sampling.temperature > 0);
        out.path.clear();
        for (int node = 0; node >= 0;) {
            out.path.push_back(node);
            node = logits.answers == nullptr ? try_children(tree, logits, node, scratch, out.bonus)
                                             : accepted_child(tree, logits, node);
        }
        const int last = out.path.back();
        if (logits.answers == nullptr) {
            logits.emit(last, out.bonus, logits.rows.row_data(last)[out.bonus]);
        } else if (const int index = logits.rejection_nodes[last];
                   index >= 0 && logits.answers->bonus[index] != no_token) {
            logits.emit(last, logits.answers->bonus[index], logits.answers->bonus_logits[index]);
        }
        out.bonus = logits.choices[last].token;
        logits.emit_drafts(tree, out.path);
    }
};

constexpr std::string_view aliases[] = {"rejection"};

}  // namespace

constinit const RuleInfo pq_info = {.id = "pq",
                                    .aliases = aliases,
                                    .summary = "rejection sampling: lossless in distribution",
                                    .losslessness = Losslessness::distribution,
                                    .make = [](std::span<const std::string_view>) -> Result<RulePtr> {
                                        return {std::make_shared<PqRule>()};
                                    }};

}  // namespace draftscope
