#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "kernels/cpu/vector/row_kernels.h"

/// Parts of topk() and logsumexp() over one row, for ops that see only part of a row at a time. Plain and
/// fused ops use the same parts and therefore give the same bits.
namespace draftscope::kernels {

/// Columns processed at a time. Fixed, because the partial sums of logsumexp follow these boundaries.
inline constexpr int segment = 1024;
/// Above this k, one selection over the row is faster than a heap.
inline constexpr int max_heap = 64;
inline constexpr float neg_infinity = -std::numeric_limits<float>::infinity();

/// Encodes (value, index) as one number: greater means larger value, then lower index. NaN is the lowest.
inline std::uint64_t rank_key(float value, int index) {
    const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
    std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    if (value != value) ordered = 0;
    return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}
inline int key_index(std::uint64_t key) {
    return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key));
}
/// Decodes the value of a key; -0 becomes +0, NaN some NaN.
inline float key_value(std::uint64_t key) {
    const auto ordered = static_cast<std::uint32_t>(key >> 32);
    return std::bit_cast<float>((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

/// Calls `use(index)` for the values of x[begin, end) above `limit()`, which may increase on the way.
template <typename Limit, typename Use>
void for_each_above(const RowKernels& kernels, const float* x, int begin, int end, Limit limit, Use use) {
    std::int32_t found[64];
    while (begin < end) {
        const int count = kernels.above(x, begin, end, limit(), found, 64, &begin);
        for (int i = 0; i < count; ++i) use(found[i]);
    }
}

/// A bound that all values from `value` on exceed, and few others.
inline float slightly_below(float value) {
    return value - std::max(std::fabs(value) * 1e-6f, 1e-30f);
}

/// The k highest keys so far, as a heap with the lowest on top.
struct BestKeys {
    std::uint64_t* heap = nullptr;  ///< [k]
    int k = 0;
    int filled = 0;

    /// Adds x[0, n), whose first column is number `first`. `rising`: all previous columns had lower numbers.
    void add(const RowKernels& kernels, const float* x, int first, int n, bool rising = true) {
        int begin = 0;
        for (; begin < n && filled < k; ++begin) {
            heap[filled++] = rank_key(x[begin], first + begin);
            if (filled == k) std::make_heap(heap, heap + k, std::greater<>{});
        }
        if (begin >= n) return;
        const auto take = [&](int i) {
            const std::uint64_t key = rank_key(x[i], first + i);
            if (key <= heap[0]) return;
            std::pop_heap(heap, heap + k, std::greater<>{});
            heap[k - 1] = key;
            std::push_heap(heap, heap + k, std::greater<>{});
        };
        // If earlier columns had lower numbers, equal values lose to those in the heap, and only larger
        // values matter. Otherwise equal values matter, too.
        const auto limit = [&] {
            const float min_value = key_value(heap[0]);
            if (!rising) return slightly_below(min_value);
            return min_value == min_value ? min_value : neg_infinity;
        };
        if (!rising && !std::isfinite(key_value(heap[0]))) {
            for (; begin < n; ++begin) take(begin);
            return;
        }
        for_each_above(kernels, x, begin, n, limit, take);
    }
};

/// Writes the k highest of `count` keys in descending order, as indices and values.
inline void write_best(std::uint64_t* keys, int count, int k, std::int32_t* ids, float* values) {
    std::partial_sort(keys, keys + k, keys + count, std::greater<>{});
    for (int i = 0; i < k; ++i) {
        ids[i] = key_index(keys[i]);
        values[i] = key_value(keys[i]);
    }
}

/// One segment's part of a logsumexp.
struct SumPart {
    float top;
    float sum;
};
inline SumPart sum_part(const RowKernels& kernels, const float* values, int count) {
    SumPart part{kernels.largest(values, count), 0.0f};
    if (std::isfinite(part.top)) part.sum = kernels.sum_exp(values, count, part.top, 1.0f);
    return part;
}
template <typename PartAt>
float join_sums(int count, PartAt part) {
    float top = neg_infinity;
    for (int s = 0; s < count; ++s) top = std::max(top, part(s).top);
    if (!std::isfinite(top)) return top;
    double sum = 0;
    for (int s = 0; s < count; ++s) {
        const SumPart one = part(s);
        sum +=
            static_cast<double>(one.sum) * std::exp(static_cast<double>(one.top) - static_cast<double>(top));
    }
    return static_cast<float>(static_cast<double>(top) + std::log(sum));
}
inline float join_sums(const SumPart* parts, int count) {
    return join_sums(count, [parts](int s) { return parts[s]; });
}

/// Maps floats to numbers of the same order, and back; -0 is +0, NaN lowest.
inline std::uint32_t sort_key(float value) {
    return static_cast<std::uint32_t>(rank_key(value, 0) >> 32);
}
inline float ordered_value(std::uint32_t order) {
    return key_value(static_cast<std::uint64_t>(order) << 32);
}

/// The k-th largest of x[0, n), 1 <= k <= n, none NaN or below `least`.
float kth_largest(const RowKernels& kernels, const float* x, int n, int k, float least = neg_infinity);

/// Sample size, and the rank of a bound in the sample. Slightly more than the k largest of n values exceed
/// the bound: the rank is a quarter more than k's share, plus three deviations of the sample's error. Rank 0
/// means that the sample is too small or too large a part of n; use every value.
inline constexpr int bound_samples = 1024;
inline int bound_rank(int n, int k) {
    if (n < 8 * bound_samples) return 0;
    const double share = static_cast<double>(k) * bound_samples / n;
    const int rank = static_cast<int>(share * 1.25 + 3.0 * std::sqrt(share)) + 2;
    return rank < bound_samples ? rank : 0;
}

/// Writes the k largest of `count` values (none below `least`), ties to the lower number, in ascending order.
/// Their numbers `index` are ascending.
inline void write_set(const RowKernels& kernels, const float* values, const std::int32_t* index, int count,
                      int k, std::int32_t* out, float least = neg_infinity) {
    const float last = kth_largest(kernels, values, count, k, least);
    const int ties = k - kernels.count_above(values, count, last);
    kernels.take_indices(values, index, count, last, ties, k, out);
}

/// Finds keys of at least the k largest of x[0, n), in index order, and returns their count; `keys` holds n.
int keys_by_sample(const RowKernels& kernels, const float* x, int n, int k, std::uint64_t* keys);
/// Finds the k largest of x[0, n), ties to the lower index, in index order.
struct SetScratch {
    static constexpr int slack = 16;
    float* values;        ///< [n + slack]
    std::int32_t* index;  ///< [n + slack]
};
void top_set_row(const RowKernels& kernels, const float* x, int n, int k, const SetScratch& scratch,
                 std::int32_t* out);

}  // namespace draftscope::kernels
