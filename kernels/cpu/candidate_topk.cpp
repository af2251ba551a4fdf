#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/set_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/selection.h"

namespace draftscope::kernels {
namespace {

/// The candidates of one row of a TopKOp.
class RowCandidates {
  public:
    RowCandidates(const TopKOp& op, int row)
        : op_(op),
          logits_(op.logits + row * op.stride),
          candidates_(op.candidates == nullptr ? nullptr : op.candidates + row * op.candidate_stride),
          ends_(op.run_ends == nullptr ? nullptr : op.run_ends + std::ptrdiff_t{row} * op.runs),
          shifts_(op.run_ends == nullptr ? nullptr : op.run_shifts + std::ptrdiff_t{row} * op.runs) {}

    /// Copies the logits to `values` and returns their number.
    int gather(const RowKernels& kernels, float* values) {
        if (ends_ != nullptr) {
            int first = 0;
            for (int run = 0; run < op_.runs; first = ends_[run++])
                std::copy(logits_ + first + shifts_[run], logits_ + ends_[run] + shifts_[run],
                          values + first);
            return first;
        }
        if (candidates_ == nullptr) {
            std::copy_n(logits_, op_.support, values);
            return op_.support;
        }
        skips_ =
            std::any_of(candidates_, candidates_ + op_.support, [](std::int32_t token) { return token < 0; });
        if (op_.index != nullptr && !skips_) {
            kernels.gather_logits(logits_, op_.index, candidates_, op_.support, values);
            return op_.support;
        }
        int count = 0;
        for (int i = 0; i < op_.support; ++i) {
            if (candidates_[i] < 0) continue;
            if (op_.index != nullptr)
                kernels.gather_logits(logits_, op_.index, candidates_ + i, 1, values + count++);
            else
                values[count++] = logits_[op_.columns == nullptr ? i : op_.columns[candidates_[i]]];
        }
        return count;
    }
    std::int32_t token(int candidate) const {
        if (ends_ == nullptr && !skips_) return candidates_ == nullptr ? candidate : candidates_[candidate];
        if (skips_) {
            int i = 0;
            for (int left = candidate + (candidates_[0] >= 0 ? 0 : 1); left > 0;)
                left -= candidates_[++i] >= 0 ? 1 : 0;
            return candidates_[i];
        }
        int run = 0;
        while (ends_[run] <= candidate) ++run;
        return op_.row_tokens[op_.column_rows[candidate + shifts_[run]]];
    }
    /// Whether candidates are in the order of their tokens.
    bool ascending() const { return ends_ == nullptr; }

  private:
    const TopKOp& op_;
    const float* logits_;
    const std::int32_t *candidates_, *ends_, *shifts_;
    bool skips_ = false;  ///< whether some of candidates_ are no candidates
};

/// Orders equal logits by token, where candidates are not. A tie may also decide which token is kept.
void order_ties(const RowCandidates& row, std::span<const float> all, std::span<std::int32_t> ids,
                std::span<float> values) {
    const float min_value = values.back();
    const auto counts = [min_value](float v) { return v >= min_value || min_value != min_value; };
    const bool tied = std::ranges::count_if(all, counts) > std::ssize(ids) ||
                      std::ranges::adjacent_find(values) != values.end();
    if (!tied) return;
    std::vector<std::uint64_t> best;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (counts(all[i])) best.push_back(rank_key(all[i], row.token(static_cast<int>(i))));
    std::ranges::sort(best, std::greater<>{});
    for (std::size_t i = 0; i < ids.size(); ++i) {
        values[i] = key_value(best[i]);
        ids[i] = key_index(best[i]);
    }
}

}  // namespace

void topk_of_candidates(ThreadPool& pool, const TopKOp& op) {
    const RowKernels& kernels = row_kernels(pool);
    const std::size_t keys = numel(std::max(op.support, op.k), 1), parts = ceil_div(op.support, segment);
    constexpr std::int64_t operations_per_value = 24;
    split_range(
        pool, op.rows, operations_per_value * op.rows * op.support, [&](int thread, int begin, int end) {
            std::byte* scratch = pool.scratch(
                thread, keys * sizeof(std::uint64_t) + parts * sizeof(SumPart) + keys * sizeof(float));
            auto* best = reinterpret_cast<std::uint64_t*>(scratch);
            auto* sums = reinterpret_cast<SumPart*>(best + keys);
            auto* values = reinterpret_cast<float*>(sums + parts);
            for (int m = begin; m < end; ++m) {
                RowCandidates row(op, m);
                const int count = row.gather(kernels, values), num_selected = std::min(op.k, count);
                const std::ptrdiff_t offset = std::ptrdiff_t{m} * op.k;
                if (op.logsumexp != nullptr) {
                    const int used = ceil_div(count, segment);
                    for (int s = 0; s < used; ++s)
                        sums[s] =
                            sum_part(kernels, values + s * segment, std::min(segment, count - s * segment));
                    op.logsumexp[m] = join_sums(sums, used);
                }
                std::int32_t* const ids = op.ids + offset;
                std::fill(ids + num_selected, ids + op.k, -1);
                std::fill(op.values + offset + num_selected, op.values + offset + op.k, neg_infinity);
                if (num_selected == 0) continue;
                if (num_selected <= max_heap) {
                    BestKeys{best, num_selected}.add(kernels, values, 0, count);
                } else {
                    const int found = keys_by_sample(kernels, values, count, num_selected, best);
                    std::nth_element(best, best + num_selected - 1, best + found, std::greater<>{});
                }
                write_best(best, num_selected, num_selected, ids, op.values + offset);
                for (int i = 0; i < num_selected; ++i) ids[i] = row.token(ids[i]);
                if (!row.ascending())
                    order_ties(row, {values, numel(count, 1)}, {ids, numel(num_selected, 1)},
                               {op.values + offset, numel(num_selected, 1)});
            }
        });
}

}  // namespace draftscope::kernels
