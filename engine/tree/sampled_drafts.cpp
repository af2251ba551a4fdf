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

/// Which entries of q the settings leave, best first; ties to the lower token id.
std::vector<std::size_t> kept_entries(const DraftDistribution& q, const SampledDrafts& settings) {
    std::vector<std::size_t> order(q.probs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::size_t sorted = 0;
    const auto sort_up_to = [&](std::size_t count) {
        count = std::min(count, order.size());
        if (count <= sorted) return;
        const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
        std::partial_sort(at(sorted), at(count), order.end(), [&](std::size_t a, std::size_t b) {
            return q.probs[a] != q.probs[b] ? q.probs[a] > q.probs[b] : q.id_at(a) < q.id_at(b);
        });
        sorted = count;
    };
    if (settings.top_k > 0 && static_cast<std::size_t>(settings.top_k) < order.size()) {
        sort_up_to(static_cast<std::size_t>(settings.top_k));
        order.resize(sorted);
    }
    if (settings.top_p >= 1.0) return order;
    double sum = 0, seen = 0;
    for (const std::size_t i : order) sum += static_cast<double>(q.probs[i]);
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || seen < settings.top_p * sum)) {
        if (count == sorted) sort_up_to(std::max<std::size_t>(64, 8 * sorted));
        seen += static_cast<double>(q.probs[order[count++]]);
    }
    order.resize(count);
    return order;
}

void cut(DraftDistribution& q, const SampledDrafts& settings) {
    std::vector<float> kept(q.probs.size(), 0.0f);
    const std::vector<std::size_t> entries = kept_entries(q, settings);
    double sum = 0;
    for (const std::size_t i : entries) sum += static_cast<double>(q.probs[i]);
    if (sum <= 0) return;
    for (const std::size_t i : entries) kept[i] = static_cast<float>(static_cast<double>(q.probs[i]) / sum);
    q.probs = std::move(kept);
}

}  // namespace

double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::draft, seed, sequence, position, order);
}

double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::accept, seed, sequence, position, order);
}

double sum_of(std::span<const float> probs) {
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

std::vector<double> block_sums(std::span<const float> probs) {
    std::vector<double> out((probs.size() + block - 1) / block);
    for (std::size_t b = 0; b < out.size(); ++b) out[b] = sum_of(block_at(probs, b));
    return out;
}

}  // namespace

DraftDistribution draft_distribution(const kernels::Exec& exec, std::vector<TokenId> ids,
                                     std::vector<float> logits, const SampledDrafts& settings) {
    DraftDistribution q;
    q.ids = std::move(ids);
    q.probs = std::move(logits);
    float most = -std::numeric_limits<float>::infinity();
    for (const float logit : q.probs) most = logit > most ? logit : most;
    if (most == -std::numeric_limits<float>::infinity()) {
        q.probs.assign(q.probs.size(), 0.0f);
        return q;
    }
    kernels::exp_row(exec, q.probs, most, static_cast<float>(1.0 / settings.temperature), q.probs);
    const std::vector<double> sums = block_sums(q.probs);
    const auto share = static_cast<float>(1.0 / std::accumulate(sums.begin(), sums.end(), 0.0));
    for (float& prob : q.probs) prob *= share;
    if (settings.top_k > 0 || settings.top_p < 1.0) cut(q, settings);
    return q;
}

namespace {

/// What is left of q while drafts are drawn from it, with sums by block so that a draw looks into one.
class Remaining {
  public:
    explicit Remaining(const DraftDistribution& q) : probs_(q.probs), sums_(block_sums(q.probs)) {}

    /// The entry that `uniform` falls on, taken out; size() when nothing is left.
    std::size_t draw(double uniform) {
        const double target = uniform * std::accumulate(sums_.begin(), sums_.end(), 0.0);
        std::size_t chosen_block = sums_.size();
        double before = 0, seen = 0;
        // Here and below the last with any weight catches what rounding leaves over.
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
    std::vector<double> sums_;
    std::vector<std::size_t> drawn_;
};

}  // namespace

std::vector<DrawnDraft> draw_drafts(const DraftDistribution& q, int count, const SampledDrafts& settings,
                                    std::uint64_t sequence, std::int64_t position) {
    std::vector<double> uniforms;
    for (int order = 0; order < count; ++order)
        uniforms.push_back(draft_uniform(settings.seed, sequence, position, order));
    return draw_drafts(q, uniforms);
}

std::vector<DrawnDraft> draw_drafts(const DraftDistribution& q, std::span<const double> uniforms) {
    std::vector<DrawnDraft> drawn;
    Remaining left(q);
    for (const double uniform : uniforms) {
        const std::size_t chosen = left.draw(uniform);
        if (chosen == left.size()) break;
        drawn.push_back({q.id_at(chosen), std::log(q.probs[chosen])});
    }
    return drawn;
}

}  // namespace draftscope
