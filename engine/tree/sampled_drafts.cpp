#include "engine/tree/sampled_drafts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "kernels/exp_sums.h"

namespace draftscope {
namespace {

enum class Purpose : std::uint64_t { target = 0, draft = 1, accept = 2 };

double purpose_uniform(Purpose purpose, std::uint64_t seed, std::uint64_t sequence, std::int64_t position,
                       int order) {
    const std::uint64_t counter = static_cast<std::uint64_t>(purpose) << 60 |
                                  static_cast<std::uint64_t>(order) << 40 |
                                  static_cast<std::uint64_t>(position);
    return token_uniform(seed, sequence, counter);
}

/// Sets `order` to the entries of q that top-k and top-p keep, best first; ties go to the lower token id.
void keep_entries(const DraftDistribution& q, const DraftSampling& settings,
                  std::vector<std::uint32_t>& order) {
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
    if (settings.top_k > 0 && static_cast<std::size_t>(settings.top_k) < order.size()) {
        sort_up_to(settings.top_k);
        order.resize(sorted);
    }
    if (settings.top_p >= 1.0) return;
    double sum = 0, seen = 0;
    for (const std::uint32_t i : order) sum += static_cast<double>(q.probs[i]);
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || seen < settings.top_p * sum)) {
        if (count == sorted) sort_up_to(std::max<std::size_t>(64, 8 * sorted));
        seen += static_cast<double>(q.probs[order[count++]]);
    }
    order.resize(count);
}

void cut(DraftDistribution& q, const DraftSampling& settings, std::vector<std::uint32_t>& kept) {
    keep_entries(q, settings, kept);
    double sum = 0;
    for (const std::uint32_t i : kept) sum += static_cast<double>(q.probs[i]);
    if (sum <= 0) return;
    // The sign marks the kept entries until all are known.
    for (const std::uint32_t i : kept)
        q.probs[i] = -static_cast<float>(static_cast<double>(q.probs[i]) / sum);
    for (float& prob : q.probs) prob = prob < 0 ? -prob : 0.0f;
}

}  // namespace

double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::draft, seed, sequence, position, order);
}

double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::accept, seed, sequence, position, order);
}

double sum_probabilities(std::span<const float> probs) {
    constexpr std::size_t lanes = 16;
    float part[lanes] = {};
    const std::size_t whole = probs.size() / lanes * lanes;
    for (std::size_t i = 0; i < whole; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) part[j] += probs[i + j];
    double sum = 0;
    for (const float value : part) sum += static_cast<double>(value);
    for (std::size_t i = whole; i < probs.size(); ++i) sum += static_cast<double>(probs[i]);
    return sum;
}

namespace {

constexpr std::size_t block = 512;

std::span<const float> block_at(std::span<const float> probs, std::size_t b) {
    return probs.subspan(b * block, std::min(block, probs.size() - b * block));
}

void block_sums(std::span<const float> probs, std::vector<double>& out) {
    out.resize((probs.size() + block - 1) / block);
    for (std::size_t b = 0; b < out.size(); ++b) out[b] = sum_probabilities(block_at(probs, b));
}

}  // namespace

void make_distribution(const kernels::Exec& exec, const DraftSampling& settings, DraftSampleScratch& scratch,
                       DraftDistribution& q) {
    float max_logit = -std::numeric_limits<float>::infinity();
    for (const float logit : q.probs) max_logit = logit > max_logit ? logit : max_logit;
    if (max_logit == -std::numeric_limits<float>::infinity()) {
        std::fill(q.probs.begin(), q.probs.end(), 0.0f);
        return;
    }
    kernels::exp_row(exec, q.probs, max_logit, static_cast<float>(1.0 / settings.temperature), q.probs);
    block_sums(q.probs, scratch.sums);
    const auto share =
        static_cast<float>(1.0 / std::accumulate(scratch.sums.begin(), scratch.sums.end(), 0.0));
    for (float& prob : q.probs) prob *= share;
    if (settings.top_k > 0 || settings.top_p < 1.0) cut(q, settings, scratch.order);
}

namespace {

/// The remaining part of q during sampling without replacement. Sums per block limit each draw to one block.
class Remaining {
  public:
    Remaining(const DraftDistribution& q, DraftSampleScratch& scratch)
        : probs_(q.probs), sums_(scratch.sums), drawn_(scratch.taken) {
        block_sums(probs_, sums_);
        drawn_.clear();
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
        const std::size_t first = chosen_block * block, end = std::min(probs_.size(), first + block);
        double left = 0;
        for (std::size_t i = first; i < end; ++i) {
            if (is_drawn(i) || probs_[i] <= 0) continue;
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
        if (chosen != probs_.size()) drawn_.push_back(chosen);
        return chosen;
    }
    std::size_t size() const { return probs_.size(); }

  private:
    bool is_drawn(std::size_t i) const { return std::find(drawn_.begin(), drawn_.end(), i) != drawn_.end(); }

    std::span<const float> probs_;
    std::vector<double>& sums_;
    std::vector<std::size_t>& drawn_;
};

}  // namespace

std::span<const SampledToken> sample_drafts(const DraftDistribution& q, int count,
                                            const DraftSampling& settings, std::uint64_t sequence,
                                            std::int64_t position, DraftSampleScratch& scratch) {
    scratch.uniforms.clear();
    for (int order = 0; order < count; ++order)
        scratch.uniforms.push_back(draft_uniform(settings.seed, sequence, position, order));
    return sample_drafts(q, scratch.uniforms, scratch);
}

std::span<const SampledToken> sample_drafts(const DraftDistribution& q, std::span<const double> uniforms,
                                            DraftSampleScratch& scratch) {
    scratch.drawn.clear();
    Remaining left(q, scratch);
    for (const double uniform : uniforms) {
        const std::size_t chosen = left.draw(uniform);
        if (chosen == left.size()) break;
        scratch.drawn.push_back({q.id_at(chosen), std::log(q.probs[chosen])});
    }
    return scratch.drawn;
}

}  // namespace draftscope
