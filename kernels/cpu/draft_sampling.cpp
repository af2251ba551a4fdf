#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/probabilities.h"
#include "kernels/cpu/row_ops.h"

namespace draftscope::kernels {
namespace {

/// Sets `order` to the entries of q that top-k and top-p keep, best first; ties go to the lower token.
void keep_entries(const DraftProbs& q, int top_k, double top_p, std::vector<std::uint32_t>& order) {
    order.resize(q.probs.size());
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    std::size_t sorted = 0;
    const auto sort_up_to = [&](std::size_t count) {
        count = std::min(count, order.size());
        if (count <= sorted) return;
        const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
        std::partial_sort(at(sorted), at(count), order.end(), [&](std::uint32_t a, std::uint32_t b) {
            return q.probs[a] != q.probs[b] ? q.probs[a] > q.probs[b] : q.id_at(a) < q.id_at(b);
        });
        sorted = count;
    };
    if (top_k > 0 && static_cast<std::size_t>(top_k) < order.size()) {
        sort_up_to(top_k);
        order.resize(sorted);
    }
    if (top_p >= 1.0) return;
    double sum = 0, seen = 0;
    for (const std::uint32_t i : order) sum += static_cast<double>(q.probs[i]);
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || seen < top_p * sum)) {
        if (count == sorted) sort_up_to(std::max<std::size_t>(64, 8 * sorted));
        seen += static_cast<double>(q.probs[order[count++]]);
    }
    order.resize(count);
}

void cut(const DraftProbs& q, int top_k, double top_p, std::vector<std::uint32_t>& selected) {
    keep_entries(q, top_k, top_p, selected);
    double sum = 0;
    for (const std::uint32_t i : selected) sum += static_cast<double>(q.probs[i]);
    if (sum <= 0) return;
    // The sign marks the kept entries until all are known.
    for (const std::uint32_t i : selected)
        q.probs[i] = -static_cast<float>(static_cast<double>(q.probs[i]) / sum);
    for (float& prob : q.probs) prob = prob < 0 ? -prob : 0.0f;
}

void block_sums(std::span<const float> probs, std::vector<double>& out) {
    out.clear();
    visit_block_sums(probs, [&](double sum) { out.push_back(sum); });
}

/// The remaining part of q during sampling without replacement. Sums per block limit each draw to one block.
class Remaining {
  public:
    Remaining(std::span<const float> probs, DraftSampleScratch& scratch)
        : probs_(probs), sums_(scratch.sums), sampled_(scratch.sampled) {
        block_sums(probs_, sums_);
        sampled_.clear();
    }

    /// Removes and returns the entry that `uniform` selects; size() if nothing is left.
    std::size_t draw(double uniform) {
        const double target = uniform * std::accumulate(sums_.begin(), sums_.end(), 0.0);
        std::size_t chosen_block = sums_.size();
        double before = 0, seen = 0;
        // Here and below, the last entry with any weight takes the rounding remainder.
        for (std::size_t b = 0; b < sums_.size(); ++b) {
            if (sums_[b] > 0 && (chosen_block == sums_.size() || seen <= target)) {
                chosen_block = b;
                before = seen;
            }
            seen += sums_[b];
        }
        if (chosen_block == sums_.size()) return probs_.size();
        std::size_t chosen = probs_.size();
        const std::size_t first = chosen_block * probability_block;
        const std::size_t end = std::min(probs_.size(), first + probability_block);
        double left = 0;
        for (std::size_t i = first; i < end; ++i) {
            if (is_sampled(i) || probs_[i] <= 0) continue;
            const auto weight = static_cast<double>(probs_[i]);
            if (chosen == probs_.size() || before <= target) {
                if (chosen != probs_.size()) left += static_cast<double>(probs_[chosen]);
                chosen = i;
                before += weight;
            } else {
                left += weight;
            }
        }
        sums_[chosen_block] = left;
        if (chosen != probs_.size()) sampled_.push_back(chosen);
        return chosen;
    }
    std::size_t size() const { return probs_.size(); }

  private:
    bool is_sampled(std::size_t i) const {
        return std::find(sampled_.begin(), sampled_.end(), i) != sampled_.end();
    }

    std::span<const float> probs_;
    std::vector<double>& sums_;
    std::vector<std::size_t>& sampled_;
};

}  // namespace

double sum_probabilities(std::span<const float> probs) {
    constexpr std::size_t lanes = 16;
    float part[lanes] = {};
    const std::size_t in_full_lanes = probs.size() / lanes * lanes;
    for (std::size_t i = 0; i < in_full_lanes; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) part[j] += probs[i + j];
    double sum = 0;
    for (const float value : part) sum += static_cast<double>(value);
    for (std::size_t i = in_full_lanes; i < probs.size(); ++i) sum += static_cast<double>(probs[i]);
    return sum;
}

void make_distribution(const ThreadPool& pool, double temperature, int top_k, double top_p,
                       DraftSampleScratch& scratch, const DraftProbs& q) {
    float max_logit = -std::numeric_limits<float>::infinity();
    for (const float logit : q.probs) max_logit = logit > max_logit ? logit : max_logit;
    if (max_logit == -std::numeric_limits<float>::infinity()) {
        std::ranges::fill(q.probs, 0.0f);
        return;
    }
    exp_row(pool, q.probs, max_logit, static_cast<float>(1.0 / temperature), q.probs);
    block_sums(q.probs, scratch.sums);
    const auto share =
        static_cast<float>(1.0 / std::accumulate(scratch.sums.begin(), scratch.sums.end(), 0.0));
    for (float& prob : q.probs) prob *= share;
    if (top_k > 0 || top_p < 1.0) cut(q, top_k, top_p, scratch.order);
}

void sample_drafts(const DraftProbs& q, std::span<const double> uniforms, DraftSampleScratch& scratch,
                   std::span<std::int32_t> ids, std::span<float> logprobs) {
    Remaining left(q.probs, scratch);
    for (std::size_t i = 0; i < uniforms.size(); ++i) {
        const std::size_t chosen = left.draw(uniforms[i]);
        const bool found = chosen < left.size();
        ids[i] = found ? q.id_at(chosen) : -1;
        logprobs[i] = found ? std::log(q.probs[chosen]) : -std::numeric_limits<float>::infinity();
    }
}

}  // namespace draftscope::kernels
