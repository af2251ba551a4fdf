#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/numel.h"
#include "kernels/cpu/probabilities.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/set_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/selection.h"

namespace draftscope::kernels {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// The weights of one row. The total comes from block sums; the other steps read few tokens, in double.
class RowWeights {
  public:
    RowWeights(std::span<const float> logits, float top, std::span<const float> block_sums, float inverse)
        : logits_(logits), block_sums_(block_sums), top_(top), inverse_(inverse) {}

    double weight(std::int32_t id) const {
        const float logit = logits_[id];
        return std::isnan(logit) ? 0.0 : static_cast<double>(std::exp((logit - top_) * inverse_));
    }
    double total() const {
        double sum = 0;
        for (const float part : block_sums_) sum += static_cast<double>(part);
        return sum;
    }
    double total(std::span<const std::int32_t> ids) const {
        double sum = 0;
        for (const std::int32_t id : ids) sum += weight(id);
        return sum;
    }
    /// Returns how many of `best` (best first) reach `mass` of `sum`; 0 if all of them do not.
    std::size_t count_to_reach(std::span<const std::int32_t> best, double mass, double sum) const {
        double seen = 0;
        for (std::size_t i = 0; i < best.size(); ++i) {
            seen += weight(best[i]);
            if (seen >= mass * sum) return i + 1;
        }
        return 0;
    }
    /// Samples from all tokens whose weights add up to `sum`.
    std::int32_t draw(double uniform, double sum) const {
        const auto [block, before] = find_block(block_sums_, uniform * sum);
        const std::size_t first = block * static_cast<std::size_t>(exp_sums_block);
        const std::size_t end = std::min(logits_.size(), first + exp_sums_block);
        return pick(uniform * sum, before, first, end,
                    [](std::size_t i) { return static_cast<std::int32_t>(i); });
    }
    /// Samples from the tokens `selected`, ascending, whose weights add up to `sum`.
    std::int32_t draw(double uniform, double sum, std::span<const std::int32_t> selected) const {
        return pick(uniform * sum, 0.0, 0, selected.size(), [&](std::size_t i) { return selected[i]; });
    }

  private:
    /// Returns the first token whose cumulative weight exceeds `target`; the last token with any weight takes
    /// the rounding remainder.
    template <typename IdAt>
    std::int32_t pick(double target, double before, std::size_t first, std::size_t end, IdAt id_at) const {
        if (first >= end) return 0;
        std::int32_t token = id_at(first);
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

/// Best tokens tried first for top-p: most rows are peaked. More than max_heap, which topk() finds by a
/// sample.
constexpr int initial_top_k = 2 * max_heap;

/// Computes the maxima and block sums of rows. Returns the block sums.
Rows<const float> add_blocks(ThreadPool& pool, Rows<const float> logits, float inverse,
                             SampleScratch& scratch) {
    const int blocks = (logits.cols + exp_sums_block - 1) / exp_sums_block;
    scratch.tops.resize(logits.rows);
    scratch.sums.resize(numel(logits.rows, blocks));
    const Rows<float> sums(scratch.sums.data(), logits.rows, blocks);
    exp_sums(pool, logits, inverse, scratch.tops, sums);
    return Rows<const float>(sums.data, logits.rows, blocks);
}

void find_best(ThreadPool& pool, Rows<const float> rows, int k, std::vector<std::int32_t>& ids,
               SampleScratch& scratch) {
    const std::size_t size = numel(rows.rows, k);
    ids.resize(size);
    scratch.values.resize(size);
    topk(pool, rows, k, Rows<std::int32_t>(ids.data(), rows.rows, k),
         Rows<float>(scratch.values.data(), rows.rows, k));
}

}  // namespace

/// Processes a few rows at a time, so that the second pass finds them in the cache. It starts at the last
/// row, so that the root and its children, which later ops read again, stay in the cache.
void select_topk(ThreadPool& pool, const TopKOp& op) {
    if (op.candidates != nullptr || op.run_ends != nullptr || op.support < op.k)
        return topk_of_candidates(pool, op);
    constexpr int rows_at_once = 4;
    const Rows<const float> logits(op.logits, op.rows, op.support, static_cast<std::ptrdiff_t>(op.stride));
    for (int end = op.rows; end > 0; end -= rows_at_once) {
        const int first = std::max(0, end - rows_at_once), count = end - first;
        const Rows<const float> rows = logits.slice(first, count);
        std::int32_t* ids = op.ids + numel(first, op.k);
        float* values = op.values + numel(first, op.k);
        if (op.k == 1) {
            argmax(pool, rows, std::span(ids, count));
            for (int i = 0; i < count; ++i) values[i] = rows.row_data(i)[ids[i]];
        } else {
            topk(pool, rows, op.k, Rows<std::int32_t>(ids, count, op.k), Rows<float>(values, count, op.k));
        }
        if (op.logsumexp != nullptr) logsumexp(pool, rows, std::span(op.logsumexp + first, count));
    }
}

void mask_top_k_top_p(ThreadPool& pool, const TopKTopPMaskOp& op, SampleScratch& scratch) {
    assert(op.sizes == nullptr);
    const Rows<const float> logits(op.logits, op.rows, op.vocab, static_cast<std::ptrdiff_t>(op.stride));
    const Rows<const float> sums = add_blocks(pool, logits, op.inv_temperature, scratch);
    const bool few = op.top_k > 0 && op.top_k < op.vocab;
    const int limit = few ? op.top_k : op.vocab;
    const int width = few ? limit : std::min(limit, initial_top_k);
    find_best(pool, logits, width, scratch.best, scratch);
    const auto selected_of = [&](int r) {
        const std::span<const std::int32_t> best(scratch.best.data() + numel(r, width), width);
        if (op.top_p >= 1.0) return best;
        const RowWeights row(logits.row(r), scratch.tops[r], sums.row(r), op.inv_temperature);
        const double sum = limit == width ? row.total(best) : row.total();
        std::span<const std::int32_t> found = best;
        for (int k = width;;) {
            const std::size_t count = row.count_to_reach(found, op.top_p, sum);
            if (count > 0) return found.first(count);
            if (k == limit) return found;
            k = static_cast<int>(std::min<std::int64_t>(limit, std::int64_t{k} * 8));
            find_best(pool, logits.slice(r, 1), k, scratch.more, scratch);
            found = scratch.more;
        }
    };
    for (int r = 0; r < op.rows; ++r) {
        std::span<const std::int32_t> selected = selected_of(r);
        const float* row = logits.row_data(r);
        while (!selected.empty() && std::isnan(row[selected.back()]))
            selected = selected.first(selected.size() - 1);
        op.min_logit[r] = selected.empty() ? minus_infinity : row[selected.back()];
        std::int32_t last = selected.empty() ? op.vocab - 1 : selected.back();
        for (const std::int32_t id : selected)
            if (row[id] == op.min_logit[r]) last = std::max(last, id);
        op.last_tied_id[r] = last;
    }
}

void sample(ThreadPool& pool, const SampleOp& op, SampleScratch& scratch) {
    const Rows<const float> logits(op.logits, op.rows, op.vocab, static_cast<std::ptrdiff_t>(op.stride));
    const auto set = [&](int r, std::int32_t token, double sum, float top) {
        op.tokens[r] = token;
        op.values[r] = logits.row_data(r)[token];
        op.log_norm[r] = sum > 0 ? static_cast<float>(std::log(sum)) + top * op.inv_temperature : 0.0f;
    };
    if (op.mask.min_logit == nullptr) {
        const Rows<const float> sums = add_blocks(pool, logits, op.inv_temperature, scratch);
        for (int r = 0; r < op.rows; ++r) {
            const RowWeights row(logits.row(r), scratch.tops[r], sums.row(r), op.inv_temperature);
            const double sum = row.total();
            set(r, row.draw(op.uniforms[r], sum), sum, scratch.tops[r]);
        }
        return;
    }
    scratch.selected.resize(pool.threads());
    const RowKernels& kernels = row_kernels(pool);
    const int capacity = op.vocab + 16;
    for (std::vector<std::int32_t>& selected : scratch.selected) selected.resize(capacity);
    split_range(pool, op.rows, std::int64_t{op.rows} * op.vocab, [&](int thread, int begin, int end) {
        std::int32_t* ids = scratch.selected[thread].data();
        for (int r = begin; r < end; ++r) {
            const std::span<const float> values = logits.row(r);
            const float least = op.mask.min_logit[r];
            const std::int32_t last = op.mask.last_tied_id[r];
            const float bound = slightly_below(least);
            int found = op.vocab, next = 0;
            if (std::isfinite(bound))
                found = kernels.above(values.data(), 0, op.vocab, bound, ids, capacity, &next);
            else
                std::iota(ids, ids + op.vocab, 0);
            const auto is_selected = [&](std::int32_t id) {
                return values[id] > least || (values[id] == least && id <= last);
            };
            const std::span<const std::int32_t> selected(
                ids, std::remove_if(ids, ids + found, [&](std::int32_t id) { return !is_selected(id); }));
            float top = kernels.largest(values.data(), op.vocab);
            if (top == minus_infinity) top = 0.0f;
            const RowWeights row(values, top, {}, op.inv_temperature);
            const double sum = row.total(selected);
            set(r, row.draw(op.uniforms[r], sum, selected), sum, top);
        }
    });
}

float RowDistribution::probability(float logit) const {
    if (!(logit >= min_logit)) return 0.0f;
    return std::min(std::exp(logit * inv_temperature - log_norm), 1.0f);
}

float set_probability(const ThreadPool& pool, const float* logits, std::span<const std::int32_t> ids,
                      const RowDistribution& row) {
    std::array<float, probability_block> some;
    double sum = 0;
    for (std::size_t first = 0; first < ids.size(); first += some.size()) {
        const std::size_t count = std::min(some.size(), ids.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            const float logit = logits[ids[first + i]];
            some[i] = logit >= row.min_logit ? logit : minus_infinity;
        }
        const std::span<float> now(some.data(), count);
        exp_row(pool, now, row.log_norm / row.inv_temperature, row.inv_temperature, now);
        for (const float p : now) sum += static_cast<double>(std::min(p, 1.0f));
    }
    return static_cast<float>(std::min(sum, 1.0));
}

double entropy(std::span<const float> logits, const RowDistribution& row) {
    double sum = 0;
    for (const float logit : logits) {
        const auto p = static_cast<double>(row.probability(logit));
        sum -= p * std::log(p + static_cast<double>(entropy_floor));
    }
    return sum;
}

}  // namespace draftscope::kernels
