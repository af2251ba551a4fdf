#include "kernels/head.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/selection.h"
#include "kernels/cpu/split.h"
#include "kernels/head_rows.h"
#include "kernels/matmul.h"
#include "kernels/topk.h"

namespace draftscope::kernels {
namespace {

constexpr int segment_blocks = segment / lanes;

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/// The product of a call, a stretch of outputs at a time.
class Stretches {
  public:
    Stretches(Exec& exec, const Matrix& weights, Rows<const float> x, const float* bias)
        : exec_(exec),
          kernels_(matmul_kernels_of(exec.isa())),
          kernel_(blocks_kernel(kernels_, weights.packing())),
          packing_(weights.packing()),
          activations_(kernels_, weights.precision(), x),
          blocks_(blocks_of(weights.n(), lanes)) {
        work_.weights = weights.data();
        work_.scales = reinterpret_cast<const std::uint16_t*>(
            weights.data() +
            static_cast<std::size_t>(blocks_) * block_bytes(packing_.precision, weights.k()));
        work_.n = weights.n();
        work_.k = weights.k();
        work_.rows = x.rows;
        work_.x = x.data;
        work_.x_stride = x.stride;
        work_.bias = bias;
    }

    int blocks() const { return blocks_; }
    std::size_t activation_bytes() const { return aligned(activations_.bytes()); }
    /// Once, before run(), into memory that all threads see.
    void prepare(std::byte* buffer) {
        if (!activations_.needed()) return;
        split_range(exec_, work_.rows, std::int64_t{work_.rows} * work_.k,
                    [&](int, int begin, int end) { activations_.prepare(buffer, begin, end); });
        activations_.point(work_, buffer);
    }

    /// Blocks [first, first + count) into y [M, stride].
    void run(int first, int count, float* y, int stride) const {
        MatmulWork part = work_;
        const auto skipped = static_cast<std::size_t>(first);
        part.weights += skipped * block_bytes(packing_.precision, work_.k);
        part.scales += skipped * scale_bytes(packing_, work_.k) / sizeof(std::uint16_t);
        part.n -= first * lanes;
        if (part.bias != nullptr) part.bias += first * lanes;
        part.y = y;
        part.y_stride = stride;
        kernel_(part, 0, count);
    }

  private:
    Exec& exec_;
    const MatmulKernels& kernels_;
    MatmulBlocks kernel_;
    Packing packing_;
    Activations activations_;
    int blocks_;
    MatmulWork work_;
};

}  // namespace

bool head_pass_pays(const Exec& exec, int n, int k) {
    if (k > most_best) return false;
    // The largest share against an even one: at most a sixth more.
    const int share = blocks_of(blocks_of(n, segment), exec.threads());
    return std::int64_t{6} * share * exec.threads() * segment <= std::int64_t{7} * n;
}

void head_pass(Exec& exec, const Matrix& weights, Rows<const float> x, int support, int k, const float* bias,
               HeadPartials& out) {
    assert(x.cols == weights.k() && support <= weights.n() && k > 0 && k <= std::min(support, most_best));
    const RowKernels& kernels = row_kernels(exec);
    out.rows = x.rows;
    out.k = k;
    out.parts = blocks_of(support, segment);
    out.lists = std::min(exec.threads(), out.parts);
    const auto rows = static_cast<std::size_t>(x.rows);
    const std::size_t row_keys = static_cast<std::size_t>(out.lists) * static_cast<std::size_t>(k);
    out.keys.assign(rows * row_keys, std::uint64_t{0});
    out.sums.resize(rows * static_cast<std::size_t>(out.parts));
    if (x.rows == 0) return;
    Stretches product(exec, weights, x, bias);
    product.prepare(exec.shared_scratch(product.activation_bytes()));
    const std::int64_t operations = std::int64_t{x.rows} * support * weights.k();
    split_range(exec, out.parts, operations, [&](int thread, int begin, int end) {
        auto* y = reinterpret_cast<float*>(exec.scratch(thread, rows * segment * sizeof(float)));
        for (int s = begin; s < end; ++s) {
            const int first = s * segment, count = std::min(segment, support - first);
            product.run(s * segment_blocks, blocks_of(count, lanes), y, segment);
            for (std::size_t r = 0; r < rows; ++r) {
                const float* row = y + r * segment;
                const SumPart part = sum_part(kernels, row, count);
                out.sums[r * static_cast<std::size_t>(out.parts) + static_cast<std::size_t>(s)] = {part.top,
                                                                                                   part.sum};
                std::uint64_t* keys = out.keys.data() + r * row_keys + static_cast<std::size_t>(thread * k);
                BestKeys best{keys, k, std::min(k, first - begin * segment)};
                best.add(kernels, row, first, count);
            }
        }
    });
}

void finish_logsumexp(const HeadPartials& partials, std::span<float> out) {
    const FlushDenormals mode;
    for (std::size_t r = 0; r < out.size(); ++r) {
        const auto* sums = partials.sums.data() + r * static_cast<std::size_t>(partials.parts);
        out[r] = join_sums(partials.parts, [&](int s) { return SumPart{sums[s].first, sums[s].second}; });
    }
}

void finish_topk(HeadPartials& partials, Rows<std::int32_t> ids, Rows<float> values) {
    const int count = partials.lists * partials.k;
    for (int r = 0; r < partials.rows; ++r)
        write_best(partials.keys.data() + std::ptrdiff_t{r} * count, count, partials.k, ids.row_data(r),
                   values.row_data(r));
}

namespace {

/// The values of one row that passed its bound, of one thread's stretch of outputs.
struct Passed {
    float* values;
    std::int32_t* index;
    int* count;  ///< -1: more passed than there is room for
};

/// head_top_set()'s memory: for each thread and row a list of what passed, and each row's bound.
class PassedLists {
  public:
    PassedLists(int threads, int rows, int room)
        : threads_(threads),
          rows_(static_cast<std::size_t>(rows)),
          room_(static_cast<std::size_t>(room + SetScratch::slack)) {}
    std::size_t bytes() const {
        return lists() * (room_ * (sizeof(float) + sizeof(std::int32_t)) + sizeof(int)) +
               rows_ * sizeof(float);
    }
    void place(std::byte* at) { at_ = at; }
    Passed of(int thread, int row) const {
        const std::size_t list = static_cast<std::size_t>(thread) * rows_ + static_cast<std::size_t>(row);
        return {floats() + list * room_, indices() + list * room_, counts() + list};
    }
    float& bound(int row) const {
        return reinterpret_cast<float*>(counts() + lists())[static_cast<std::size_t>(row)];
    }
    /// Values that a list takes; a few more places may be written.
    int room() const { return static_cast<int>(room_) - SetScratch::slack; }
    int threads() const { return threads_; }
    void clear() { std::fill_n(counts(), lists(), 0); }

  private:
    std::size_t lists() const { return static_cast<std::size_t>(threads_) * rows_; }
    float* floats() const { return reinterpret_cast<float*>(at_); }
    std::int32_t* indices() const { return reinterpret_cast<std::int32_t*>(floats() + lists() * room_); }
    int* counts() const { return reinterpret_cast<int*>(indices() + lists() * room_); }

    int threads_;
    std::size_t rows_, room_;
    std::byte* at_ = nullptr;
};

/// Appends the values of y[0, n) above `bound`; column 0 is output number `first`.
void keep_passing(const RowKernels& kernels, const float* y, int n, int first, float bound, int room,
                  const Passed& list) {
    if (*list.count < 0) return;
    if (*list.count + n > room && *list.count + kernels.count_above(y, n, bound) > room) {
        *list.count = -1;
        return;
    }
    *list.count +=
        kernels.take_above(y, n, first, bound, list.values + *list.count, list.index + *list.count);
}

/// Bounds of all rows from 64 blocks of outputs spread over the matrix; +inf where there is none.
void find_bounds(Exec& exec, const Stretches& product, const RowKernels& kernels, int rows, int place,
                 const PassedLists& lists) {
    constexpr int blocks = bound_samples / lanes;
    auto* sample = reinterpret_cast<float*>(
        exec.scratch(0, static_cast<std::size_t>(rows) * bound_samples * sizeof(float)));
    const std::int64_t operations = std::int64_t{rows} * bound_samples * 32;
    split_range(exec, blocks, operations, [&](int, int begin, int end) {
        for (int b = begin; b < end; ++b)
            product.run(static_cast<int>(std::int64_t{b} * (product.blocks() - 1) / (blocks - 1)), 1,
                        sample + std::ptrdiff_t{b} * lanes, bound_samples);
    });
    split_range(exec, rows, operations, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const float bound =
                kth_largest(kernels, sample + std::ptrdiff_t{r} * bound_samples, bound_samples, place);
            lists.bound(r) = std::isfinite(bound) ? bound : -lowest;
        }
    });
}

}  // namespace

void head_top_set(Exec& exec, const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    const int rows = x.rows, n = weights.n();
    assert(x.cols == weights.k() && k > 0 && k <= n && ids.rows == rows && ids.cols == k);
    if (rows == 0) return;
    if (weights.on_device()) return device_top_set(weights, x, k, ids);
    const RowKernels& kernels = row_kernels(exec);
    const int place = bound_place(n, k);
    // A row that the sample misjudged, and every row of a small matrix: all its logits at once.
    std::vector<int> whole;
    if (place == 0) {
        for (int r = 0; r < rows; ++r) whole.push_back(r);
    } else {
        Stretches product(exec, weights, x, nullptr);
        const int segments = blocks_of(n, segment);
        PassedLists lists(std::min(exec.threads(), segments), rows, 2 * k + segment);
        std::byte* shared = exec.shared_scratch(product.activation_bytes() + lists.bytes());
        product.prepare(shared);
        lists.place(shared + product.activation_bytes());
        lists.clear();
        find_bounds(exec, product, kernels, rows, place, lists);
        split_range(exec, segments, std::int64_t{rows} * n * weights.k(),
                    [&](int thread, int begin, int end) {
                        auto* y = reinterpret_cast<float*>(
                            exec.scratch(thread, static_cast<std::size_t>(rows) * segment * sizeof(float)));
                        for (int s = begin; s < end; ++s) {
                            const int first = s * segment, count = std::min(segment, n - first);
                            product.run(s * segment_blocks, blocks_of(count, lanes), y, segment);
                            for (int r = 0; r < rows; ++r)
                                keep_passing(kernels, y + std::ptrdiff_t{r} * segment, count, first,
                                             lists.bound(r), lists.room(), lists.of(thread, r));
                        }
                    });
        const std::int64_t operations = std::int64_t{rows} * k * 16;
        split_range(exec, rows, operations, [&](int thread, int begin, int end) {
            const std::size_t room =
                static_cast<std::size_t>(lists.threads()) * static_cast<std::size_t>(lists.room());
            std::byte* scratch = exec.scratch(thread, room * (sizeof(float) + sizeof(std::int32_t)));
            auto* values = reinterpret_cast<float*>(scratch);
            auto* index = reinterpret_cast<std::int32_t*>(values + room);
            for (int r = begin; r < end; ++r) {
                int found = 0;
                bool complete = true;
                for (int t = 0; t < lists.threads(); ++t) {
                    const Passed list = lists.of(t, r);
                    complete = complete && *list.count >= 0;
                    if (!complete) break;
                    std::copy_n(list.values, *list.count, values + found);
                    std::copy_n(list.index, *list.count, index + found);
                    found += *list.count;
                }
                ids.row_data(r)[0] = -1;
                if (complete && found >= k)
                    write_set(kernels, values, index, found, k, ids.row_data(r), lists.bound(r));
            }
        });
        for (int r = 0; r < rows; ++r)
            if (ids.row_data(r)[0] < 0) whole.push_back(r);
    }
    if (whole.empty()) return;
    std::vector<float> logits(static_cast<std::size_t>(n));
    for (const int r : whole) {
        matmul(exec, weights, x.slice(r, 1), Rows<float>(logits.data(), 1, n));
        top_set(exec, Rows<const float>(logits.data(), 1, n), k, ids.slice(r, 1));
    }
}

}  // namespace draftscope::kernels
