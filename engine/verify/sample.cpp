#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "base/rng.h"
#include "engine/verify/verify.h"
#include "kernels/exp_sums.h"
#include "kernels/topk.h"

namespace draftscope {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Smaller temperatures behave like 0, and their inverse would overflow.
constexpr double min_temperature = 1e-4;

/// The distribution of one row. The total comes from the kernel's block sums; the other steps touch few
/// tokens, in double.
class RowSampler {
  public:
    RowSampler(std::span<const float> logits, float top, std::span<const float> block_sums, float inverse)
        : logits_(logits), block_sums_(block_sums), top_(top), inverse_(inverse) {}

    /// Samples from the whole vocabulary.
    TargetSample draw(double uniform) const {
        const double sum = total();
        const auto [block, before] = find_block(uniform * sum);
        const std::size_t first = block * static_cast<std::size_t>(kernels::exp_sums_block);
        const std::size_t end = std::min(logits_.size(), first + kernels::exp_sums_block);
        return choice(
            pick(uniform * sum, before, first, end, [](std::size_t i) { return static_cast<TokenId>(i); }),
            sum, minus_infinity);
    }

    /// Samples from the tokens `kept`, in any order on entry.
    TargetSample draw(double uniform, std::span<TokenId> kept) const {
        std::sort(kept.begin(), kept.end());
        double sum = 0;
        float min_logit = std::numeric_limits<float>::infinity();
        for (const TokenId id : kept) {
            sum += weight(id);
            min_logit = std::min(min_logit, logits_[id]);
        }
        return choice(pick(uniform * sum, 0.0, 0, kept.size(), [&](std::size_t i) { return kept[i]; }), sum,
                      min_logit);
    }

    /// Returns how many of `best` (best first) reach `mass` of `sum`; 0 if all of them do not.
    std::size_t count_to_reach(std::span<const TokenId> best, double mass, double sum) const {
        double seen = 0;
        for (std::size_t i = 0; i < best.size(); ++i) {
            seen += weight(best[i]);
            if (seen >= mass * sum) return i + 1;
        }
        return 0;
    }
    double total() const {
        double sum = 0;
        for (const float part : block_sums_) sum += static_cast<double>(part);
        return sum;
    }
    double total(std::span<const TokenId> ids) const {
        double sum = 0;
        for (const TokenId id : ids) sum += weight(id);
        return sum;
    }

  private:
    double weight(TokenId id) const {
        const float logit = logits_[id];
        return std::isnan(logit) ? 0.0 : static_cast<double>(std::exp((logit - top_) * inverse_));
    }

    TargetSample choice(TokenId token, double sum, float min_logit) const {
        TargetSample out;
        out.token = token;
        out.min_logit = min_logit;
        if (sum > 0) {
            out.log_norm = static_cast<float>(std::log(sum)) + top_ * inverse_;
            out.prob = static_cast<float>(weight(token) / sum);
        }
        return out;
    }

    /// Returns the block that contains `target`, and the weight before it.
    std::pair<std::size_t, double> find_block(double target) const {
        std::size_t chosen = 0;
        double seen = 0, before = 0;
        for (std::size_t b = 0; b < block_sums_.size(); ++b) {
            if (block_sums_[b] > 0 && seen <= target) {
                chosen = b;
                before = seen;
            }
            seen += static_cast<double>(block_sums_[b]);
        }
        return {chosen, before};
    }

    /// Returns the first token whose cumulative weight exceeds `target`; the last token with any weight takes
    /// the rounding remainder.
    template <typename IdAt>
    TokenId pick(double target, double before, std::size_t first, std::size_t end, IdAt id_at) const {
        TokenId token = id_at(first);
        for (std::size_t i = first; i < end; ++i) {
            const double w = weight(id_at(i));
            if (w <= 0) continue;
            if (before <= target) token = id_at(i);
            before += w;
        }
        return token;
    }

    std::span<const float> logits_, block_sums_;
    float top_, inverse_;
};

/// Number of best tokens tried first for top-p: most rows are peaked.
constexpr int initial_top_k = 64;

/// The tokens of each row that top-k and top-p keep.
class TopKTopPFilter {
  public:
    TopKTopPFilter(kernels::Exec& exec, Rows<const float> logits, const Sampling& sampling,
                   TargetSampleScratch& scratch)
        : exec_(exec), logits_(logits), sampling_(sampling), scratch_(scratch) {
        const bool few = sampling.top_k > 0 && sampling.top_k < logits.cols;
        limit_ = few ? sampling.top_k : logits.cols;
        width_ = few ? limit_ : std::min(limit_, initial_top_k);
        find_best(logits, width_, scratch.best);
    }
    /// Best first; valid until the next call.
    std::span<TokenId> row(int r, const RowSampler& sampler) {
        const std::span<TokenId> best(scratch_.best.data() + row_offset(r, width_), width_);
        if (sampling_.top_p >= 1.0) return best;
        const double sum = limit_ == width_ ? sampler.total(best) : sampler.total();
        std::span<TokenId> found = best;
        for (int k = width_;;) {
            const std::size_t count = sampler.count_to_reach(found, sampling_.top_p, sum);
            if (count > 0) return found.first(count);
            if (k == limit_) return found;
            k = static_cast<int>(std::min<std::int64_t>(limit_, std::int64_t{k} * 8));
            find_best(logits_.slice(r, 1), k, scratch_.more);
            found = scratch_.more;
        }
    }

  private:
    void find_best(Rows<const float> rows, int k, std::vector<TokenId>& ids) {
        const std::size_t cells = numel(rows.rows, k);
        ids.resize(cells);
        scratch_.values.resize(cells);
        kernels::topk(exec_, rows, k, Rows<std::int32_t>(ids.data(), rows.rows, k),
                      Rows<float>(scratch_.values.data(), rows.rows, k));
    }

    kernels::Exec& exec_;
    Rows<const float> logits_;
    const Sampling& sampling_;
    TargetSampleScratch& scratch_;
    int limit_ = 0, width_ = 0;
};

void choose_sampled(kernels::Exec& exec, Rows<const float> logits, const Sampling& sampling,
                    std::span<const TokenPosition> places, TargetSampleScratch& scratch,
                    std::vector<TargetSample>& out) {
    const std::size_t rows = logits.rows;
    const int blocks = (logits.cols + kernels::exp_sums_block - 1) / kernels::exp_sums_block;
    const float inverse = inverse_temperature(sampling);
    std::vector<float>& tops = scratch.tops;
    tops.resize(rows);
    scratch.sums.resize(rows * blocks);
    const Rows<float> by_block(scratch.sums.data(), logits.rows, blocks);
    kernels::exp_sums(exec, logits, inverse, tops, by_block);
    const auto make_sampler = [&](int r) {
        return RowSampler(logits.row(r), tops[r], by_block.row(r), inverse);
    };
    const auto row_uniform = [&](int r) {
        const TokenPosition& place = places[r];
        return token_uniform(sampling.seed, place.sequence, static_cast<std::uint64_t>(place.position));
    };
    const bool cut = sampling.top_p < 1.0 || (sampling.top_k > 0 && sampling.top_k < logits.cols);
    if (!cut) {
        for (int r = 0; r < logits.rows; ++r) out[r] = make_sampler(r).draw(row_uniform(r));
        return;
    }
    TopKTopPFilter kept(exec, logits, sampling, scratch);
    for (int r = 0; r < logits.rows; ++r) {
        const RowSampler sampler = make_sampler(r);
        out[r] = sampler.draw(row_uniform(r), kept.row(r, sampler));
    }
}

/// Processes a few rows at a time, so that the second pass finds them in the cache. It starts at the last
/// row, so that the root and its children, which recording reads again, stay in the cache.
void sample_greedy(kernels::Exec& exec, Rows<const float> logits, std::vector<TargetSample>& out) {
    constexpr int rows_at_once = 4;
    std::int32_t best[rows_at_once];
    float log_norm[rows_at_once];
    for (int end = logits.rows; end > 0; end -= rows_at_once) {
        const int first = std::max(0, end - rows_at_once);
        const std::size_t count = end - first;
        const Rows<const float> rows = logits.slice(first, end - first);
        kernels::argmax(exec, rows, std::span(best, count));
        kernels::logsumexp(exec, rows, std::span(log_norm, count));
        for (std::size_t i = 0; i < count; ++i) {
            const float logit = rows.row_data(static_cast<int>(i))[best[i]];
            out[first + i] = {best[i], std::exp(logit - log_norm[i]), log_norm[i], minus_infinity};
        }
    }
}

}  // namespace

float inverse_temperature(const Sampling& sampling) {
    return static_cast<float>(1.0 / std::max(sampling.temperature, min_temperature));
}

float target_probability(const TargetSample& choice, const Sampling& sampling, float logit) {
    if (!(logit >= choice.min_logit)) return 0.0f;
    const float scaled = sampling.temperature > 0 ? logit * inverse_temperature(sampling) : logit;
    return std::min(std::exp(scaled - choice.log_norm), 1.0f);
}

void sample_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> places, TargetSampleScratch& scratch,
                   std::vector<TargetSample>& out) {
    assert(vocab <= logits.cols && places.size() == static_cast<std::size_t>(logits.rows));
    const Rows<const float> real(logits.data, logits.rows, vocab, logits.stride);
    out.assign(logits.rows, {});
    if (sampling.temperature <= 0) return sample_greedy(exec, real, out);
    choose_sampled(exec, real, sampling, places, scratch, out);
}

void sample_tokens(kernels::Exec& exec, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> places, std::vector<TargetSample>& out) {
    TargetSampleScratch scratch;
    sample_tokens(exec, logits, vocab, sampling, places, scratch, out);
}

}  // namespace draftscope
