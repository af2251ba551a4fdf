#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "engine/verify/verify.h"
#include "kernels/topk.h"

namespace draftscope {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Below this a temperature is as good as zero, and its inverse would overflow.
constexpr double lowest_temperature = 1e-4;

float inverse_temperature(const Sampling& sampling) {
    return static_cast<float>(1.0 / std::max(sampling.temperature, lowest_temperature));
}

/// One row's distribution. Sums run in id order and in double, so that a draw depends on its row alone.
class RowSampler {
  public:
    RowSampler(std::span<const float> logits, const Sampling& sampling)
        : logits_(logits), inverse_(inverse_temperature(sampling)) {
        for (const float value : logits) max_ = std::max(max_, value);
        if (max_ == minus_infinity) max_ = 0.0f;
        if (sampling.top_k > 0 && static_cast<std::size_t>(sampling.top_k) < logits.size())
            keep_best(static_cast<std::size_t>(sampling.top_k));
        if (sampling.top_p < 1.0) keep_mass(sampling.top_p);
    }

    TargetChoice draw(double uniform) const {
        const std::size_t count = cut_ ? kept_.size() : logits_.size();
        std::vector<double> block_sums((count + block - 1) / block, 0.0);
        double sum = 0;
        for (std::size_t b = 0; b < block_sums.size(); ++b) {
            const std::size_t end = std::min(count, (b + 1) * block);
            for (std::size_t i = b * block; i < end; ++i) block_sums[b] += weight(id_at(i));
            sum += block_sums[b];
        }
        TargetChoice choice;
        choice.lowest = lowest_;
        choice.token = pick(uniform * sum, block_sums, count);
        if (sum > 0) {
            choice.log_norm = static_cast<float>(std::log(sum)) + max_ * inverse_;
            choice.prob = static_cast<float>(weight(choice.token) / sum);
        }
        return choice;
    }

  private:
    static constexpr std::size_t block = 512;

    double weight(TokenId id) const {
        const float logit = logits_[static_cast<std::size_t>(id)];
        return std::isnan(logit) ? 0.0 : static_cast<double>(std::exp((logit - max_) * inverse_));
    }

    TokenId id_at(std::size_t i) const { return cut_ ? kept_[i] : static_cast<TokenId>(i); }

    /// First token whose cumulative weight passes `target`; the last one with any weight catches what
    /// rounding leaves over.
    TokenId pick(double target, const std::vector<double>& block_sums, std::size_t count) const {
        std::size_t chosen = 0;
        double seen = 0, before = 0;
        for (std::size_t b = 0; b < block_sums.size(); ++b) {
            if (block_sums[b] > 0 && seen <= target) {
                chosen = b;
                before = seen;
            }
            seen += block_sums[b];
        }
        TokenId token = id_at(0);
        const std::size_t end = std::min(count, (chosen + 1) * block);
        for (std::size_t i = chosen * block; i < end; ++i) {
            const double w = weight(id_at(i));
            if (w <= 0) continue;
            if (before <= target) token = id_at(i);
            before += w;
        }
        return token;
    }

    bool better(TokenId a, TokenId b) const {
        const float la = logits_[static_cast<std::size_t>(a)], lb = logits_[static_cast<std::size_t>(b)];
        const bool na = std::isnan(la), nb = std::isnan(lb);
        if (na || nb) return na == nb ? a < b : nb;
        return la != lb ? la > lb : a < b;
    }

    void make_candidates() {
        if (cut_) return;
        kept_.resize(logits_.size());
        std::iota(kept_.begin(), kept_.end(), 0);
        cut_ = true;
    }

    void close() {
        lowest_ = std::numeric_limits<float>::infinity();
        for (const TokenId id : kept_) lowest_ = std::min(lowest_, logits_[static_cast<std::size_t>(id)]);
        std::sort(kept_.begin(), kept_.end());
    }

    void keep_best(std::size_t count) {
        make_candidates();
        std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count), kept_.end(),
                         [this](TokenId a, TokenId b) { return better(a, b); });
        kept_.resize(count);
        close();
    }

    void keep_mass(double mass) {
        make_candidates();
        double sum = 0;
        for (const TokenId id : kept_) sum += weight(id);
        // Most rows are peaked: sorting grows until the mass is reached, rarely to the whole vocabulary.
        double seen = 0;
        std::size_t sorted = 0, count = 0;
        while (count < kept_.size()) {
            if (count == sorted) {
                const std::size_t next = std::min(kept_.size(), sorted == 0 ? 64 : sorted * 8);
                std::partial_sort(kept_.begin() + static_cast<std::ptrdiff_t>(sorted),
                                  kept_.begin() + static_cast<std::ptrdiff_t>(next), kept_.end(),
                                  [this](TokenId a, TokenId b) { return better(a, b); });
                sorted = next;
            }
            seen += weight(kept_[count]);
            ++count;
            if (seen >= mass * sum) break;
        }
        kept_.resize(std::max<std::size_t>(count, 1));
        close();
    }

    std::span<const float> logits_;
    float inverse_;
    float max_ = minus_infinity;
    float lowest_ = minus_infinity;
    bool cut_ = false;
    std::vector<TokenId> kept_;  ///< ascending ids, when `cut_`
};

void choose_greedy(kernels::Exec& exec, Rows<const float> logits, std::vector<TargetChoice>& out) {
    const auto rows = static_cast<std::size_t>(logits.rows);
    std::vector<std::int32_t> best(rows);
    std::vector<float> log_norm(rows);
    kernels::argmax(exec, logits, best);
    kernels::logsumexp(exec, logits, log_norm);
    for (std::size_t r = 0; r < rows; ++r) {
        const float logit = logits.row_data(static_cast<int>(r))[best[r]];
        out[r] = {best[r], std::exp(logit - log_norm[r]), log_norm[r], minus_infinity};
    }
}

}  // namespace

float probability_of(const TargetChoice& choice, const Sampling& sampling, float logit) {
    if (!(logit >= choice.lowest)) return 0.0f;
    const float scaled = sampling.temperature > 0 ? logit * inverse_temperature(sampling) : logit;
    return std::min(std::exp(scaled - choice.log_norm), 1.0f);
}

void choose_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPlace> places, std::vector<TargetChoice>& out) {
    assert(vocab <= logits.cols && places.size() == static_cast<std::size_t>(logits.rows));
    const Rows<const float> real(logits.data, logits.rows, vocab, logits.stride);
    out.assign(static_cast<std::size_t>(logits.rows), {});
    if (sampling.temperature <= 0) return choose_greedy(exec, real, out);
    exec.parallel(real.rows, [&](int r) {
        const auto i = static_cast<std::size_t>(r);
        RowSampler sampler(real.row(r), sampling);
        out[i] = sampler.draw(
            token_uniform(sampling.seed, places[i].sequence, static_cast<std::uint64_t>(places[i].position)));
    });
}

}  // namespace draftscope
