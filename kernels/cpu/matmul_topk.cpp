#include "kernels/cpu/matmul_topk.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/fused.h"
#include "kernels/cpu/matmul/prefetch.h"
#include "kernels/cpu/matmul/threshold_matmul.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/threads/work_stealing.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/selection.h"

namespace draftscope::kernels {
namespace {

constexpr int segment_blocks = segment / lanes;

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/// The product of a call, computed one chunk of outputs at a time.
class LogitsChunks {
  public:
    LogitsChunks(ThreadPool& pool, const Matrix& weights, Rows<const float> x, const float* bias)
        : pool_(pool),
          kernels_(matmul_kernels_for(pool.isa())),
          kernel_(blocks_kernel(kernels_, weights.packing())),
          packing_(weights.packing()),
          activations_(kernels_, weights.precision(), x),
          blocks_(ceil_div(weights.n(), lanes)),
          streamed_(exceeds_l2(block_bytes(packing_.precision, weights.k()) *
                               (ceil_div(blocks_, pool.threads())))) {
        work_.weights = weights.data();
        work_.scales = reinterpret_cast<const std::uint16_t*>(
            weights.data() + blocks_ * block_bytes(packing_.precision, weights.k()));
        work_.n = weights.n();
        work_.k = weights.k();
        work_.rows = x.rows;
        work_.x = x.data;
        work_.x_stride = x.stride;
        work_.bias = bias;
    }

    /// Number of blocks without padding outputs.
    int full_blocks() const { return work_.n / lanes; }
    /// Whether the threads prepare the activations together, before the product.
    bool shared() const { return activations_.needed() && work_.rows > max_rows_quantised_per_thread; }
    std::size_t shared_bytes() const { return shared() ? aligned(activations_.bytes()) : 0; }
    void prepare(std::byte* buffer) {
        if (!shared()) return;
        split_range(pool_, work_.rows, std::int64_t{work_.rows} * work_.k,
                    [&](int, int begin, int end) { activations_.prepare(buffer, begin, end); });
        activations_.point(work_, buffer);
    }

    /// Per-thread scratch for activations that are not shared.
    std::size_t own_bytes() const {
        return activations_.needed() && !shared() ? aligned(activations_.bytes()) : 0;
    }
    MatmulWork thread_work(std::byte* buffer) const {
        MatmulWork work = work_;
        if (own_bytes() == 0) return work;
        activations_.prepare(buffer, 0, work.rows);
        activations_.point(work, buffer);
        return work;
    }

    /// Whether keep() is supported.
    bool keeps() const {
        return threshold_kernel() != nullptr && work_.k <= max_threshold_inputs &&
               work_.rows >= min_threshold_rows();
    }
    /// Keeps the outputs of blocks [first, first + count) that exceed the rows' bounds. Without bias.
    void keep(const MatmulWork& work, int first, int count, ThresholdedRow* rows) const {
        threshold_kernel()(rows_from(work, first), 0, count, first * lanes, rows);
    }
    /// Prefetches a block that is read alone.
    void fetch(int block) const {
        const std::size_t bytes = block_bytes(packing_.precision, work_.k);
        for (std::size_t line = 0; line < bytes; line += weight_line)
            __builtin_prefetch(work_.weights + numel(block, bytes) + line, 0, 2);
    }

    /// Writes blocks [first, first + count) to y [M, stride].
    void run(const MatmulWork& work, int first, int count, float* y, int stride) const {
        MatmulWork part = rows_from(work, first);
        part.y = y;
        part.y_stride = stride;
        // A thread processes its chunks in order, but the single blocks of a sample are scattered.
        const int followed = count < segment_blocks ? count : blocks_ - first;
        PrefetchState stream =
            make_prefetch_state(part.weights, block_bytes(packing_.precision, work_.k), 0, followed);
        if (streamed_) part.stream = &stream;
        kernel_(part, 0, count);
    }

  private:
    MatmulWork rows_from(MatmulWork part, int first) const {
        const std::size_t skipped = first;
        part.weights += skipped * block_bytes(packing_.precision, part.k);
        part.scales += skipped * scale_bytes(packing_, part.k) / sizeof(std::uint16_t);
        part.n -= first * lanes;
        if (part.bias != nullptr) part.bias += first * lanes;
        return part;
    }
    /// For one row of int8, vpdpbusd is faster.
    int min_threshold_rows() const { return packing_.precision == Precision::int8 ? 2 : 1; }
    ThresholdMatmulBlocks threshold_kernel() const {
        return packing_.precision == Precision::int8   ? kernels_.threshold_matmul_int8
               : packing_.precision == Precision::bf16 ? kernels_.threshold_matmul_bf16
                                                       : nullptr;
    }

    ThreadPool& pool_;
    const MatmulKernels& kernels_;
    MatmulBlocks kernel_;
    Packing packing_;
    ProductInput activations_;
    int blocks_;
    bool streamed_;
    MatmulWork work_;
};

}  // namespace

bool prefers_fused_topk(const ThreadPool& pool, int n, int k) {
    if (k > max_fused_topk) return false;
    // The largest share compared with an even one: at most a sixth more.
    const int share = ceil_div(ceil_div(n, segment), pool.threads());
    return std::int64_t{6} * share * pool.threads() * segment <= std::int64_t{7} * n;
}

void matmul_topk(ThreadPool& pool, const Matrix& weights, Rows<const float> x, int support, int k,
                 const float* bias, PartialTopK& out) {
    assert(x.cols == weights.k() && support <= weights.n() && k > 0 &&
           k <= std::min(support, max_fused_topk));
    const RowKernels& kernels = row_kernels(pool);
    out.rows = x.rows;
    out.k = k;
    out.parts = ceil_div(support, segment);
    out.lists = std::min(pool.threads(), out.parts);
    const std::size_t rows = x.rows;
    const std::size_t row_keys = numel(out.lists, k);
    out.keys.assign(rows * row_keys, std::uint64_t{0});
    out.sums.resize(rows * out.parts);
    if (x.rows == 0) return;
    LogitsChunks product(pool, weights, x, bias);
    product.prepare(pool.shared_scratch(product.shared_bytes()));
    const std::int64_t operations = std::int64_t{x.rows} * support * weights.k();
    WorkStealingRange shares(out.parts, WorkStealingRange::threads_for(pool, out.parts, operations), 1);
    run_threads(pool, shares.threads(), [&](int thread) {
        if (!shares.has_work()) return;
        // Each thread builds its lists in its own memory: sharing a cache line with another thread slows
        // writes.
        const std::size_t own_keys = rows * k;
        std::byte* scratch = pool.scratch(thread, product.own_bytes() + rows * segment * sizeof(float) +
                                                      aligned(own_keys * sizeof(std::uint64_t)));
        const MatmulWork work = product.thread_work(scratch);
        auto* y = reinterpret_cast<float*>(scratch + product.own_bytes());
        auto* lists = reinterpret_cast<std::uint64_t*>(y + rows * segment);
        std::fill_n(lists, own_keys, std::uint64_t{0});
        int seen = 0;
        shares.take_all(thread, [&](int begin, int end, bool rising) {
            for (int s = begin; s < end; ++s) {
                const int first = s * segment, count = std::min(segment, support - first);
                product.run(work, s * segment_blocks, ceil_div(count, lanes), y, segment);
                for (std::size_t r = 0; r < rows; ++r) {
                    const float* row = y + r * segment;
                    const SumPart part = sum_part(kernels, row, count);
                    out.sums[r * out.parts + s] = {part.top, part.sum};
                    BestKeys best{lists + r * k, k, std::min(k, seen)};
                    best.add(kernels, row, first, count, rising);
                }
                seen += count;
            }
        });
        for (std::size_t r = 0; r < rows; ++r)
            std::copy_n(lists + r * k, k,
                        out.keys.data() + r * row_keys + static_cast<std::size_t>(thread * k));
    });
}

void finish_logsumexp(const PartialTopK& partials, std::span<float> out) {
    const FlushDenormals mode;
    for (std::size_t r = 0; r < out.size(); ++r) {
        const auto* sums = partials.sums.data() + r * partials.parts;
        out[r] = join_sums(partials.parts, [&](int s) { return SumPart{sums[s].first, sums[s].second}; });
    }
}

void finish_topk(PartialTopK& partials, Rows<std::int32_t> ids, Rows<float> values) {
    const int count = partials.lists * partials.k;
    for (int r = 0; r < partials.rows; ++r)
        write_best(partials.keys.data() + std::ptrdiff_t{r} * count, count, partials.k, ids.row_data(r),
                   values.row_data(r));
}

namespace {

/// The values of one row that exceed its bound, from one thread's chunks of outputs.
struct Survivors {
    float* values;
    std::int32_t* index;
};

/// Memory of matmul_topk_set(): for each thread and row a list of survivors and its length, -1 on overflow.
class SurvivorLists {
  public:
    SurvivorLists(int threads, int rows, int capacity)
        : threads_(threads),
          rows_(rows),
          capacity_(aligned((capacity + SetScratch::slack) * sizeof(float)) / sizeof(float)),
          counts_(aligned(rows_ * sizeof(int)) / sizeof(int)) {}
    std::size_t bytes() const {
        return threads_ *
               (rows_ * capacity_ * (sizeof(float) + sizeof(std::int32_t)) + counts_ * sizeof(int));
    }
    void set_memory(std::byte* at) {
        values_ = reinterpret_cast<float*>(at);
        index_ = reinterpret_cast<std::int32_t*>(values_ + threads_ * rows_ * capacity_);
        count_ = reinterpret_cast<int*>(index_ + threads_ * rows_ * capacity_);
        std::fill_n(count_, numel(threads_, counts_), 0);
    }
    Survivors of(int thread, int row) const {
        const std::size_t list = numel(thread, rows_) + row;
        return {values_ + list * capacity_, index_ + list * capacity_};
    }
    /// On a cache line that no other thread writes.
    int& count(int thread, int row) const { return count_[numel(thread, counts_) + row]; }
    /// Capacity of a list; a few more entries may be written.
    int capacity() const { return static_cast<int>(capacity_) - SetScratch::slack; }
    int threads() const { return threads_; }

  private:
    int threads_;
    std::size_t rows_, capacity_, counts_;
    float* values_ = nullptr;
    std::int32_t* index_ = nullptr;
    int* count_ = nullptr;
};

/// Appends the values of y[0, n) above `bound` to a list of `found` entries. Column 0 is output number
/// `first`. Returns the new length.
int keep_above(const RowKernels& kernels, const float* y, int n, int first, float bound, int capacity,
               const Survivors& list, int found) {
    if (found < 0 || (found + n > capacity && found + kernels.count_above(y, n, bound) > capacity)) return -1;
    return found + kernels.take_above(y, n, first, bound, list.values + found, list.index + found);
}

constexpr int sample_blocks = bound_samples / lanes;

/// Computes the samples of all rows, [rows, bound_samples], from blocks [begin, end) of the sample_blocks
/// spread over the matrix. Every thread computes the same samples, since each derives the bounds itself.
void take_samples(const LogitsChunks& product, const MatmulWork& work, int begin, int end, float* samples) {
    const auto block_at = [&](int b) {
        return static_cast<int>(std::int64_t{b} * (product.full_blocks() - 1) / (sample_blocks - 1));
    };
    for (int b = begin; b < end; ++b) product.fetch(block_at(b));
    for (int b = begin; b < end; ++b)
        product.run(work, block_at(b), 1, samples + std::ptrdiff_t{b} * lanes, bound_samples);
}
/// Returns the bound of a row; +inf if the sample gives none.
float sample_bound(const RowKernels& kernels, const float* sample, int rank) {
    const float bound = kth_largest(kernels, sample, bound_samples, rank);
    return std::isfinite(bound) ? bound : -neg_infinity;
}

/// Fills one thread's part of the lists from chunks [begin, end) of `segment` outputs. `memory` holds one
/// ThresholdedRow per row if the product filters its outputs, else the logits of one chunk.
void fill_lists(const RowKernels& kernels, const LogitsChunks& product, const MatmulWork& work, int begin,
                int end, const float* bounds, const SurvivorLists& lists, int thread, std::byte* memory) {
    const auto length = [&](int s) { return std::min(segment, work.n - s * segment); };
    if (!product.keeps()) {
        auto* y = reinterpret_cast<float*>(memory);
        for (int s = begin; s < end; ++s) {
            product.run(work, s * segment_blocks, ceil_div(length(s), lanes), y, segment);
            for (int r = 0; r < work.rows; ++r) {
                int& found = lists.count(thread, r);
                found = keep_above(kernels, y + std::ptrdiff_t{r} * segment, length(s), s * segment,
                                   bounds[r], lists.capacity(), lists.of(thread, r), found);
            }
        }
        return;
    }
    auto* rows = reinterpret_cast<ThresholdedRow*>(memory);
    for (int r = 0; r < work.rows; ++r) {
        const Survivors list = lists.of(thread, r);
        rows[r] = {bounds[r], 0, list.values, list.index};
    }
    for (int s = begin; s < end; ++s) {
        for (int r = 0; r < work.rows; ++r) {
            if (rows[r].count + length(s) <= lists.capacity()) continue;
            rows[r] = {-neg_infinity, 0, rows[r].values, rows[r].indices};
            lists.count(thread, r) = -1;
        }
        product.keep(work, s * segment_blocks, ceil_div(length(s), lanes), rows);
    }
    for (int r = 0; r < work.rows; ++r)
        if (int& found = lists.count(thread, r); found >= 0) found = rows[r].count;
}

/// Computes the sets of matmul_topk_set() from the outputs that exceed each row's bound. If a row's sample
/// was wrong, its first id becomes -1.
void keep_best(ThreadPool& pool, const Matrix& weights, Rows<const float> x, int k, int rank,
               Rows<std::int32_t> ids) {
    const int rows = x.rows, n = weights.n();
    const RowKernels& kernels = row_kernels(pool);
    LogitsChunks product(pool, weights, x, nullptr);
    const int segments = ceil_div(n, segment);
    SurvivorLists lists(std::min(pool.threads(), segments), rows, 2 * k + 2 * segment);
    // Every thread computes the bounds of a few rows itself, which is cheaper than a barrier.
    const bool share_samples = rows > max_rows_quantised_per_thread;
    const std::size_t row_bounds = aligned(rows * sizeof(float));
    const std::size_t samples_bytes = static_cast<std::size_t>(rows) * bound_samples * sizeof(float);
    std::byte* shared = pool.shared_scratch(product.shared_bytes() + lists.bytes() + row_bounds +
                                            (share_samples ? samples_bytes : 0));
    product.prepare(shared);
    lists.set_memory(shared + product.shared_bytes());
    auto* common = reinterpret_cast<float*>(shared + product.shared_bytes() + lists.bytes());
    const auto find_bounds = [&](int begin, int end, const float* samples, float* bounds) {
        for (int r = begin; r < end; ++r)
            bounds[r] = sample_bound(kernels, samples + std::ptrdiff_t{r} * bound_samples, rank);
    };
    if (share_samples) {
        float* samples = common + row_bounds / sizeof(float);
        const std::int64_t operations = std::int64_t{rows} * bound_samples * 32;
        split_range(pool, sample_blocks, operations, [&](int thread, int begin, int end) {
            take_samples(product, product.thread_work(pool.scratch(thread, product.own_bytes())), begin, end,
                         samples);
        });
        split_range(pool, rows, operations,
                    [&](int, int begin, int end) { find_bounds(begin, end, samples, common); });
    }
    split_range(pool, segments, std::int64_t{rows} * n * weights.k(), [&](int thread, int begin, int end) {
        static_assert(bound_samples == segment && segment * sizeof(float) >= sizeof(ThresholdedRow));
        std::byte* scratch = pool.scratch(thread, product.own_bytes() + row_bounds + samples_bytes);
        const MatmulWork work = product.thread_work(scratch);
        float* bounds = reinterpret_cast<float*>(scratch + product.own_bytes());
        auto* y = bounds + row_bounds / sizeof(float);
        if (share_samples) {
            bounds = common;
        } else {
            take_samples(product, work, 0, sample_blocks, y);
            find_bounds(0, rows, y, bounds);
            if (begin == 0) std::copy_n(bounds, rows, common);
        }
        fill_lists(kernels, product, work, begin, end, bounds, lists, thread,
                   reinterpret_cast<std::byte*>(y));
    });
    const std::int64_t operations = std::int64_t{rows} * k * 32;
    split_range(pool, rows, operations, [&](int thread, int begin, int end) {
        const std::size_t capacity = numel(lists.threads(), lists.capacity());
        std::byte* scratch = pool.scratch(thread, capacity * (sizeof(float) + sizeof(std::int32_t)));
        auto* values = reinterpret_cast<float*>(scratch);
        auto* index = reinterpret_cast<std::int32_t*>(values + capacity);
        for (int r = begin; r < end; ++r) {
            int found = 0;
            bool complete = true;
            for (int t = 0; t < lists.threads(); ++t) {
                const int count = lists.count(t, r);
                complete = complete && count >= 0;
                if (!complete) break;
                const Survivors list = lists.of(t, r);
                std::copy_n(list.values, count, values + found);
                std::copy_n(list.index, count, index + found);
                found += count;
            }
            ids.row_data(r)[0] = -1;
            if (complete && found >= k)
                write_set(kernels, values, index, found, k, ids.row_data(r), common[r]);
        }
    });
}

}  // namespace

void matmul_topk_set(ThreadPool& pool, const Matrix& weights, Rows<const float> x, int k,
                     Rows<std::int32_t> ids, std::vector<float>& logits) {
    const int rows = x.rows, n = weights.n();
    assert(x.cols == weights.k() && k > 0 && k <= n && ids.rows == rows && ids.cols == k);
    if (rows == 0) return;
    const int rank = weights.on_device() ? 0 : bound_rank(n, k);
    if (rank > 0) keep_best(pool, weights, x, k, rank, ids);
    // Rows whose sample was wrong, and all rows of a small matrix, use all their logits.
    for (int r = 0; r < rows; ++r) {
        if (rank > 0 && ids.row_data(r)[0] >= 0) continue;
        if (logits.size() < static_cast<std::size_t>(n)) logits.resize(n);
        matmul(pool, weights, x.slice(r, 1), Rows<float>(logits.data(), 1, n));
        topk_set(pool, Rows<const float>(logits.data(), 1, n), k, ids.slice(r, 1));
    }
}

}  // namespace draftscope::kernels
