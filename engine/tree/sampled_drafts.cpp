#include "engine/tree/sampled_drafts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"

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

DraftDistribution draft_distribution(std::vector<TokenId> ids, std::span<const float> logits,
                                     const SampledDrafts& settings) {
    DraftDistribution q;
    q.ids = std::move(ids);
    q.probs.assign(logits.size(), 0.0f);
    float most = -std::numeric_limits<float>::infinity();
    for (const float logit : logits)
        if (logit > most) most = logit;
    if (most == -std::numeric_limits<float>::infinity()) return q;
    std::vector<double> weights(logits.size(), 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (std::isnan(logits[i])) continue;
        weights[i] = std::exp(static_cast<double>(logits[i] - most) / settings.temperature);
        sum += weights[i];
    }
    for (std::size_t i = 0; i < weights.size(); ++i) q.probs[i] = static_cast<float>(weights[i] / sum);
    if (settings.top_k > 0 || settings.top_p < 1.0) cut(q, settings);
    return q;
}

std::vector<DrawnDraft> draw_drafts(const DraftDistribution& q, int count, const SampledDrafts& settings,
                                    std::uint64_t sequence, std::int64_t position) {
    std::vector<DrawnDraft> drawn;
    std::vector<float> left(q.probs);
    for (int order = 0; order < count; ++order) {
        double sum = 0;
        for (const float p : left) sum += static_cast<double>(p);
        if (sum <= 0) break;
        const double target = draft_uniform(settings.seed, sequence, position, order) * sum;
        double before = 0;
        std::size_t chosen = left.size();
        // The last token with any weight catches what rounding leaves over.
        for (std::size_t i = 0; i < left.size(); ++i) {
            if (left[i] <= 0) continue;
            if (chosen != left.size() && before > target) break;
            chosen = i;
            before += static_cast<double>(left[i]);
        }
        drawn.push_back({q.id_at(chosen), std::log(q.probs[chosen])});
        left[chosen] = 0;
    }
    return drawn;
}

}  // namespace draftscope
