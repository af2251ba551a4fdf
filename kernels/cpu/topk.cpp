#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/selection.h"

namespace draftscope::kernels {
namespace {

void topk_by_heaps(ThreadPool& pool, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values) {
    const RowKernels& kernels = row_kernels(pool);
    const int segments = ceil_div(x.cols, segment);
    const std::size_t per_row = numel(segments, k);
    auto* heaps =
        reinterpret_cast<std::uint64_t*>(pool.shared_scratch(per_row * x.rows * sizeof(std::uint64_t)));
    constexpr std::int64_t operations_per_value = 4;
    const std::int64_t operations = std::int64_t{x.rows} * x.cols * operations_per_value;
    split_range(pool, x.rows * segments, operations, [&](int, int begin, int end) {
        // One heap for all segments of a row on this thread: the fuller it is, the fewer values exceed its
        // minimum.
        std::fill(heaps + numel(begin, k), heaps + numel(end, k), std::uint64_t{0});
        for (int item = begin; item < end;) {
            const int row = item / segments;
            const int last = std::min((row + 1) * segments, end);
            const int first = item % segments * segment;
            BestKeys best{heaps + numel(item, k), k};
            best.add(kernels, x.row_data(row) + first, first,
                     std::min((last - row * segments) * segment, x.cols) - first);
            item = last;
        }
    });
    for (int r = 0; r < x.rows; ++r) {
        write_best(heaps + numel(r, per_row), static_cast<int>(per_row), k, ids.row_data(r),
                   values.row_data(r));
    }
}

/// A histogram over the leading bits finds a bound that few values beyond the k largest exceed.
int keys_by_histogram(const float* x, int n, int k, std::uint64_t* keys) {
    constexpr int bits = 12;
    int counts[1 << bits] = {};
    for (int i = 0; i < n; ++i) ++counts[rank_key(x[i], i) >> (64 - bits)];
    int bin = (1 << bits) - 1;
    for (int above = counts[bin]; above < k; above += counts[bin]) --bin;
    int found = 0;
    for (int i = 0; i < n; ++i) {
        const std::uint64_t key = rank_key(x[i], i);
        if (static_cast<int>(key >> (64 - bits)) >= bin) keys[found++] = key;
    }
    return found;
}

/// Guesses a split between `low` and `high` (as sort_key()) so that `target` values are above it. `above_low`
/// and `above_high` values are above the ends of the range. Assumes that values thin out exponentially
/// towards the largest. The result is in [low, high).
std::uint32_t guess(std::uint32_t low, std::uint32_t high, int above_low, int above_high, float target) {
    const float bottom = ordered_value(low), top = ordered_value(high);
    const float many = static_cast<float>(above_low), few = static_cast<float>(above_high) + 0.5f;
    const float at = bottom + (top - bottom) * (std::log(many / target) / std::log(many / few));
    if (!std::isfinite(at)) return low + (high - low) / 2;
    return std::clamp(sort_key(at), low, high - 1);
}

}  // namespace

float kth_largest(const RowKernels& kernels, const float* x, int n, int k, float least) {
    // Narrows [low, high], where at least k values are at or above `low` and fewer than k above `high`.
    // Guesses on either side of the k-th value leave few values between; if a guess leaves more than half,
    // the range is halved next.
    constexpr int near_by = 256;
    float between[near_by + SetScratch::slack];
    std::uint32_t low = sort_key(least), high = sort_key(kernels.largest(x, n));
    int above_low = n, above_high = 0;
    bool guessed = false, upper = false;
    while (low < high) {
        const int left = above_low - above_high;
        if (left <= near_by && n >= 2 * left && low > sort_key(neg_infinity)) {
            n = kernels.take_between(x, n, ordered_value(low - 1), ordered_value(high), between);
            x = between;
            k -= above_high;
            above_low = n;
            above_high = 0;
        }
        std::uint32_t middle = low + (high - low) / 2;
        if (!guessed) {
            const float step = static_cast<float>(left) / 16.0f;
            const float target = static_cast<float>(k) + (upper ? -step : step);
            upper = !upper;
            if (target > static_cast<float>(above_high) && target < static_cast<float>(above_low))
                middle = guess(low, high, above_low, above_high, target);
        }
        const int above = kernels.count_above(x, n, ordered_value(middle));
        if (above >= k) {
            low = middle + 1;
            above_low = above;
        } else {
            high = middle;
            above_high = above;
        }
        guessed = 2 * (above_low - above_high) > left;
    }
    return ordered_value(low);
}

int keys_by_sample(const RowKernels& kernels, const float* x, int n, int k, std::uint64_t* keys) {
    const int rank = bound_rank(n, k);
    if (rank == 0) return keys_by_histogram(x, n, k, keys);
    float sample[bound_samples];
    for (int i = 0; i < bound_samples; ++i) sample[i] = x[i * (n / bound_samples)];
    const float limit = kth_largest(kernels, sample, bound_samples, rank);
    if (!std::isfinite(limit)) return keys_by_histogram(x, n, k, keys);
    int found = 0;
    for_each_above(
        kernels, x, 0, n, [limit] { return limit; },
        [&](int index) { keys[found++] = rank_key(x[index], index); });
    // About one row in a hundred has fewer, or many ties.
    return found >= k ? found : keys_by_histogram(x, n, k, keys);
}

void top_set_row(const RowKernels& kernels, const float* x, int n, int k, const SetScratch& scratch,
                 std::int32_t* out) {
    int found = 0;
    float least = neg_infinity;
    if (const int rank = bound_rank(n, k); rank > 0) {
        float* sample = scratch.values;
        for (int i = 0; i < bound_samples; ++i) sample[i] = x[i * (n / bound_samples)];
        const float limit = kth_largest(kernels, sample, bound_samples, rank);
        if (std::isfinite(limit)) {
            found = kernels.take_above(x, n, 0, limit, scratch.values, scratch.index);
            least = limit;
        }
    }
    if (found < k) {
        least = neg_infinity;
        // NaN is below -inf, as in topk().
        for (found = 0; found < n; ++found) {
            scratch.values[found] = x[found] == x[found] ? x[found] : neg_infinity;
            scratch.index[found] = found;
        }
    }
    write_set(kernels, scratch.values, scratch.index, found, k, out, least);
}

void logsumexp(ThreadPool& pool, Rows<const float> x, std::span<float> out) {
    assert(static_cast<int>(out.size()) == x.rows && x.cols > 0);
    const RowKernels& kernels = row_kernels(pool);
    const int segments = ceil_div(x.cols, segment);
    const std::size_t items = numel(x.rows, segments);
    auto* parts = reinterpret_cast<SumPart*>(pool.shared_scratch(items * sizeof(SumPart)));
    constexpr std::int64_t operations_per_value = 4;
    const std::int64_t operations = std::int64_t{x.rows} * x.cols * operations_per_value;
    split_range(pool, x.rows * segments, operations, [&](int, int begin, int end) {
        for (int item = begin; item < end; ++item) {
            const int first = item % segments * segment;
            parts[item] =
                sum_part(kernels, x.row_data(item / segments) + first, std::min(segment, x.cols - first));
        }
    });
    for (int r = 0; r < x.rows; ++r) {
        const SumPart* row = parts + numel(r, segments);
        out[r] = join_sums(row, segments);
    }
}

void topk(ThreadPool& pool, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values) {
    assert(k > 0 && k <= x.cols && ids.rows == x.rows && values.rows == x.rows);
    if (k <= max_heap) return topk_by_heaps(pool, x, k, ids, values);
    const RowKernels& kernels = row_kernels(pool);
    split_range(pool, x.rows, std::int64_t{x.rows} * x.cols, [&](int thread, int begin, int end) {
        auto* keys = reinterpret_cast<std::uint64_t*>(pool.scratch(thread, x.cols * sizeof(std::uint64_t)));
        for (int r = begin; r < end; ++r) {
            const int found = keys_by_sample(kernels, x.row_data(r), x.cols, k, keys);
            std::nth_element(keys, keys + k - 1, keys + found, std::greater<>{});
            write_best(keys, k, k, ids.row_data(r), values.row_data(r));
        }
    });
}

void topk_set(ThreadPool& pool, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    assert(k > 0 && k <= x.cols && ids.rows == x.rows && ids.cols == k);
    const RowKernels& kernels = row_kernels(pool);
    split_range(pool, x.rows, std::int64_t{x.rows} * x.cols, [&](int thread, int begin, int end) {
        const std::size_t capacity = std::max(x.cols, bound_samples) + SetScratch::slack;
        std::byte* scratch = pool.scratch(thread, capacity * (sizeof(float) + sizeof(std::int32_t)));
        const SetScratch set_scratch{reinterpret_cast<float*>(scratch),
                                     reinterpret_cast<std::int32_t*>(scratch + capacity * sizeof(float))};
        for (int r = begin; r < end; ++r)
            top_set_row(kernels, x.row_data(r), x.cols, k, set_scratch, ids.row_data(r));
    });
}

void argmax(ThreadPool& pool, Rows<const float> x, std::span<std::int32_t> out) {
    assert(static_cast<int>(out.size()) == x.rows && x.cols > 0);
    const RowKernels& kernels = row_kernels(pool);
    split_range(pool, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const float* row = x.row_data(r);
            const float top = kernels.largest(row, x.cols);
            int first = std::isfinite(top) ? x.cols : 0;
            if (first > 0)
                for_each_above(
                    kernels, row, 0, x.cols, [top] { return slightly_below(top); },
                    [&](int i) { first = row[i] == top ? std::min(first, i) : first; });
            else
                while (first < x.cols && !(row[first] == top)) ++first;
            out[r] = first < x.cols ? first : 0;
        }
    });
}

}  // namespace draftscope::kernels
