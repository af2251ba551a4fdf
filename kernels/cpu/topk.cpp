#include "kernels/topk.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {
namespace {

/// Columns one thread takes at a time. Fixed, because the partial sums of logsumexp follow these borders.
constexpr int segment = 4096;
/// Above this many wanted values a heap per segment is slower than one selection over the row.
constexpr int most_heap = 64;
constexpr float lowest = -std::numeric_limits<float>::infinity();

/// Orders (value, index) as one number: greater means larger value, then lower index. NaN is the lowest.
std::uint64_t rank_key(float value, int index) {
    const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
    std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    if (value != value) ordered = 0;
    return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}
int index_of(std::uint64_t key) {
    return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key));
}

/// Calls `use(index)` for the values of x[begin, end) above `limit()`, which may rise on the way.
template <typename Limit, typename Use>
void for_each_above(const RowKernels& kernels, const float* x, int begin, int end, Limit limit, Use use) {
    std::int32_t found[64];
    while (begin < end) {
        const int count = kernels.above(x, begin, end, limit(), found, 64, &begin);
        for (int i = 0; i < count; ++i) use(found[i]);
    }
}

/// The `k` highest keys of x[begin, end) as a heap with the lowest on top; returns how many there are.
int heap_of_range(const RowKernels& kernels, const float* x, int begin, int end, int k, std::uint64_t* heap) {
    const int filled = std::min(k, end - begin);
    for (int i = 0; i < filled; ++i) heap[i] = rank_key(x[begin + i], begin + i);
    std::make_heap(heap, heap + filled, std::greater<>{});
    // Later equal values lose to the ones in the heap, so only strictly larger ones matter.
    const auto limit = [&] {
        const float worst = x[index_of(heap[0])];
        return worst == worst ? worst : lowest;
    };
    for_each_above(kernels, x, begin + filled, end, limit, [&](int index) {
        const std::uint64_t key = rank_key(x[index], index);
        if (key <= heap[0]) return;
        std::pop_heap(heap, heap + filled, std::greater<>{});
        heap[filled - 1] = key;
        std::push_heap(heap, heap + filled, std::greater<>{});
    });
    return filled;
}

void write_sorted(std::uint64_t* keys, int count, int k, const float* x, std::int32_t* ids, float* values) {
    std::partial_sort(keys, keys + k, keys + count, std::greater<>{});
    for (int i = 0; i < k; ++i) {
        ids[i] = index_of(keys[i]);
        values[i] = x[ids[i]];
    }
}

void topk_by_heaps(Exec& exec, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values) {
    const RowKernels& kernels = row_kernels(exec);
    const int segments = blocks_of(x.cols, segment);
    const std::size_t per_row = static_cast<std::size_t>(segments) * static_cast<std::size_t>(k);
    auto* heaps = reinterpret_cast<std::uint64_t*>(
        exec.shared_scratch(per_row * static_cast<std::size_t>(x.rows) * sizeof(std::uint64_t)));
    constexpr std::int64_t operations_per_value = 4;
    const std::int64_t operations = std::int64_t{x.rows} * x.cols * operations_per_value;
    split_range(exec, x.rows * segments, operations, [&](int, int begin, int end) {
        // One heap for all segments of a row that this thread has: the fuller it is, the fewer values pass.
        std::fill(heaps + static_cast<std::size_t>(begin) * static_cast<std::size_t>(k),
                  heaps + static_cast<std::size_t>(end) * static_cast<std::size_t>(k), std::uint64_t{0});
        for (int item = begin; item < end;) {
            const int row = item / segments;
            const int last = std::min((row + 1) * segments, end);
            heap_of_range(kernels, x.row_data(row), item % segments * segment,
                          std::min((last - row * segments) * segment, x.cols), k,
                          heaps + static_cast<std::size_t>(item) * static_cast<std::size_t>(k));
            item = last;
        }
    });
    for (int r = 0; r < x.rows; ++r) {
        write_sorted(heaps + static_cast<std::size_t>(r) * per_row, static_cast<int>(per_row), k,
                     x.row_data(r), ids.row_data(r), values.row_data(r));
    }
}

/// A histogram over the leading bits finds a bound that few values beyond the k largest pass.
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

/// The same from a sample of the row: three times as fast, and when fewer than k values pass (about one row
/// in a hundred, or many ties) the histogram still answers. Either way the keys hold the k largest.
int keys_by_sample(const RowKernels& kernels, const float* x, int n, int k, std::uint64_t* keys) {
    constexpr int samples = 1024;
    if (n < 8 * samples) return keys_by_histogram(x, n, k, keys);
    std::uint64_t sample[samples];
    for (int i = 0; i < samples; ++i) sample[i] = rank_key(x[i * (n / samples)], i * (n / samples));
    // A quarter more than k's share, and three deviations of what such a small sample gets wrong.
    const double share = static_cast<double>(k) * samples / n;
    const int place = static_cast<int>(share * 1.25 + 3.0 * std::sqrt(share)) + 1;
    if (place >= samples) return keys_by_histogram(x, n, k, keys);
    std::nth_element(sample, sample + place, sample + samples, std::greater<>{});
    const float limit = x[index_of(sample[place])];
    if (!std::isfinite(limit)) return keys_by_histogram(x, n, k, keys);
    int found = 0;
    for_each_above(
        kernels, x, 0, n, [limit] { return limit; },
        [&](int index) { keys[found++] = rank_key(x[index], index); });
    return found >= k ? found : keys_by_histogram(x, n, k, keys);
}

}  // namespace

void logsumexp(Exec& exec, Rows<const float> x, std::span<float> out) {
    assert(static_cast<int>(out.size()) == x.rows && x.cols > 0);
    const RowKernels& kernels = row_kernels(exec);
    struct Part {
        float top;
        float sum;
    };
    const int segments = blocks_of(x.cols, segment);
    const std::size_t items = static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(segments);
    auto* parts = reinterpret_cast<Part*>(exec.shared_scratch(items * sizeof(Part)));
    constexpr std::int64_t operations_per_value = 4;
    const std::int64_t operations = std::int64_t{x.rows} * x.cols * operations_per_value;
    split_range(exec, x.rows * segments, operations, [&](int, int begin, int end) {
        for (int item = begin; item < end; ++item) {
            const int first = item % segments * segment;
            const int count = std::min(segment, x.cols - first);
            const float* values = x.row_data(item / segments) + first;
            Part& part = parts[item];
            part.top = kernels.largest(values, count);
            part.sum = std::isfinite(part.top) ? kernels.sum_exp(values, count, part.top) : 0.0f;
        }
    });
    for (int r = 0; r < x.rows; ++r) {
        const Part* row = parts + static_cast<std::size_t>(r) * static_cast<std::size_t>(segments);
        float top = lowest;
        for (int s = 0; s < segments; ++s) top = std::max(top, row[s].top);
        double sum = 0;
        for (int s = 0; s < segments && std::isfinite(top); ++s) {
            sum += static_cast<double>(row[s].sum) *
                   std::exp(static_cast<double>(row[s].top) - static_cast<double>(top));
        }
        out[static_cast<std::size_t>(r)] =
            std::isfinite(top) ? static_cast<float>(static_cast<double>(top) + std::log(sum)) : top;
    }
}

void topk(Exec& exec, Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values) {
    assert(k > 0 && k <= x.cols && ids.rows == x.rows && values.rows == x.rows);
    if (k <= most_heap) return topk_by_heaps(exec, x, k, ids, values);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int thread, int begin, int end) {
        auto* keys = reinterpret_cast<std::uint64_t*>(
            exec.scratch(thread, static_cast<std::size_t>(x.cols) * sizeof(std::uint64_t)));
        for (int r = begin; r < end; ++r) {
            const int found = keys_by_sample(kernels, x.row_data(r), x.cols, k, keys);
            std::nth_element(keys, keys + k - 1, keys + found, std::greater<>{});
            write_sorted(keys, k, k, x.row_data(r), ids.row_data(r), values.row_data(r));
        }
    });
}

void top_set(Exec& exec, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    assert(k > 0 && k <= x.cols && ids.rows == x.rows && ids.cols == k);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int thread, int begin, int end) {
        const auto room = static_cast<std::size_t>(x.cols);
        auto* keys = reinterpret_cast<std::uint64_t*>(exec.scratch(thread, 2 * room * sizeof(std::uint64_t)));
        std::uint64_t* order = keys + room;
        for (int r = begin; r < end; ++r) {
            // Found in the order of their indices.
            const int found = keys_by_sample(kernels, x.row_data(r), x.cols, k, keys);
            std::copy_n(keys, found, order);
            std::nth_element(order, order + k - 1, order + found, std::greater<>{});
            const std::uint64_t last = order[k - 1];
            std::int32_t* out = ids.row_data(r);
            for (int i = 0; i < found; ++i)
                if (keys[i] >= last) *out++ = index_of(keys[i]);
        }
    });
}

void argmax(Exec& exec, Rows<const float> x, std::span<std::int32_t> out) {
    assert(static_cast<int>(out.size()) == x.rows && x.cols > 0);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const float* row = x.row_data(r);
            const float top = kernels.largest(row, x.cols);
            int at = 0;
            while (at < x.cols && !(row[at] == top)) ++at;
            out[static_cast<std::size_t>(r)] = at < x.cols ? at : 0;
        }
    });
}

}  // namespace draftscope::kernels
