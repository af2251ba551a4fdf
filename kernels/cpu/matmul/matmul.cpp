#include <unistd.h>

#include <algorithm>
#include <cassert>

#include "base/numel.h"
#include "kernels/backend/device_matrix.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/fused.h"
#include "kernels/cpu/matmul/prefetch.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/threads/work_stealing.h"
#include "kernels/cpu/vector/elementwise.h"

namespace draftscope::kernels {

const MatmulKernels& matmul_kernels_for(Isa isa) {
#if defined(DS_KERNELS_X86)
    switch (isa) {
        case Isa::amx:
            return matmul_kernels_amx;
        case Isa::avx512_bf16:
            return matmul_kernels_bf16;
        case Isa::avx512_vnni:
            return matmul_kernels_vnni;
        case Isa::avx512:
            return matmul_kernels_avx512;
        case Isa::avx_vnni:
            return matmul_kernels_avx_vnni;
        case Isa::avx2:
            return matmul_kernels_avx2;
        case Isa::portable:
            break;
    }
#endif
    (void)isa;
    return matmul_kernels_portable;
}

namespace {

/// Bytes of one core's L2 cache, without activations and outputs.
std::size_t l2_budget() {
    long second_cache = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    second_cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    constexpr long smallest = 512 << 10;  // used if the system does not report a size
    return std::max(second_cache, smallest) / 4 * 3;
}

}  // namespace

bool exceeds_l2(std::size_t bytes) {
    static const std::size_t budget = l2_budget();
    return bytes > budget;
}

namespace {

/// Finds runs of consecutive numbers in chosen[begin, end). Calls visit(first number, last number + 1, index
/// of the first).
template <typename Visit>
void for_each_run(std::span<const int> chosen, int begin, int end, Visit visit) {
    for (int at = begin; at < end;) {
        const int first = chosen[at];
        int length = 1;
        while (at + length < end && chosen[at + length] == first + length) ++length;
        visit(first, first + length, at);
        at += length;
    }
}

/// Gate and up outputs can share a piece only if both halves begin at a block boundary.
bool gate_is_block_aligned(const Matrix& gate_up) {
    return gate_up.n() % (2 * lanes) == 0;
}

/// Ops fused with a product.
struct FusionSpec {
    PreNorm norm;
    const float* bias = nullptr;
    Rows<float> sum;    ///< the outputs are added to it; null data = none
    Rows<float> gated;  ///< takes silu(first half of the outputs) * second half; null data = none
    /// Blocks of outputs, ascending and contiguous in y; null = all.
    const std::span<const int>* chosen = nullptr;
};

/// A call of matmul() or of a fused variant.
class MatmulTask {
  public:
    MatmulTask(ThreadPool& pool, const Matrix& weights, Rows<const float> x, Rows<float> y,
               const FusionSpec& around)
        : pool_(pool),
          kernels_(matmul_kernels_for(pool.isa())),
          row_kernels_(row_kernels(pool)),
          kernel_(blocks_kernel(kernels_, weights.packing())),
          block_(block_bytes(weights.precision(), weights.k())),
          fusion_(around),
          activations_(kernels_, weights.precision(), x, &row_kernels_, around.norm) {
        const int all = ceil_div(weights.n(), lanes);
        count_ = around.chosen != nullptr       ? static_cast<int>(around.chosen->size())
                 : around.gated.data != nullptr ? all / 2
                                                : all;
        work_.weights = weights.data();
        work_.scales = reinterpret_cast<const std::uint16_t*>(weights.data() + numel(all, block_));
        work_.n = weights.n();
        work_.k = weights.k();
        work_.rows = x.rows;
        work_.x = x.data;
        work_.x_stride = x.stride;
        work_.bias = around.bias;
        work_.y = y.data;
        work_.y_stride = y.stride;
    }

    void run() {
        if (activations_.needed() && work_.rows > max_rows_quantised_per_thread) {
            shared_ = pool_.shared_scratch(activations_.bytes());
            split_range(pool_, work_.rows, std::int64_t{work_.rows} * work_.k,
                        [&](int thread, int begin, int end) {
                            activations_.prepare(shared_, begin, end,
                                                 pool_.scratch(thread, activations_.row_scratch_bytes()));
                        });
        }
        const std::int64_t operations =
            std::int64_t{work_.rows} * count_ * lanes * work_.k * (gated() ? 2 : 1);
        const int threads = WorkStealingRange::threads_for(pool_, count_, operations);
        const int share = ceil_div(count_, threads);
        // A forward pass announces its next product; each of its matrices is read from memory, however small.
        streamed_ = fusion_.chosen != nullptr || pool_.next_weights().weights != nullptr ||
                    exceeds_l2(block_ * share);
        WorkStealingRange shares(count_, threads,
                                 streamed_ ? WorkStealingRange::default_min_blocks
                                           : std::max(share, WorkStealingRange::default_min_blocks));
        run_threads(pool_, threads, [&](int thread) { run_pieces(shares, thread); });
    }

  private:
    void run_pieces(WorkStealingRange& shares, int thread) const {
        if (!shares.has_work()) return;
        MatmulWork work = work_;
        std::byte* buffer = shared_;
        if (activations_.needed() && buffer == nullptr) {
            buffer = pool_.scratch(thread, activations_.bytes() + activations_.row_scratch_bytes());
            activations_.prepare(buffer, 0, work.rows, buffer + activations_.bytes());
        }
        activations_.point(work, buffer);
        if (fusion_.chosen != nullptr) {
            shares.take_all(thread, [&](int begin, int end, bool) { run_chosen(work, begin, end); });
        } else if (streamed_) {
            const int first = share_begin(count_, thread, shares.threads()),
                      last = share_begin(count_, thread + 1, shares.threads());
            PrefetchCursor stream(pool_, thread, work.weights, block_, first, last);
            shares.take_all(thread, [&](int begin, int end, bool is_local) {
                run_streamed(work, begin, end, is_local ? &stream : nullptr, last);
                finish(begin, end);
            });
        } else {
            shares.take_all(thread, [&](int begin, int end, bool) {
                kernel_(work, begin, end);
                if (gated()) kernel_(work, count_ + begin, count_ + end);
                finish(begin, end);
            });
        }
    }

    /// `cursor` belongs to the share that ends before block `last`; null if the piece was stolen from another
    /// thread.
    void run_streamed(MatmulWork& work, int begin, int end, PrefetchCursor* cursor, int last) const {
        const auto run = [&](int from, int to) {
            PrefetchState others = make_prefetch_state(work.weights, block_, from, to);
            work.stream = cursor != nullptr ? cursor->get() : &others;
            kernel_(work, from, to);
        };
        if (!gated()) return run(begin, end);
        if (cursor != nullptr) cursor->enter(at(begin), at(end), at(count_ + begin));
        run(begin, end);
        if (cursor != nullptr)
            cursor->enter(at(count_ + begin), at(count_ + end), end < last ? at(end) : nullptr);
        run(count_ + begin, count_ + end);
    }
    const std::byte* at(int block) const { return work_.weights + numel(block, block_); }

    /// Runs the fused ops while the outputs of blocks [begin, end) are in the thread's cache.
    void finish(int begin, int end) const {
        if (!gated() && fusion_.sum.data == nullptr) return;
        const int first = begin * lanes, columns = std::min(end * lanes, work_.n) - first;
        for (int r = 0; r < work_.rows; ++r) {
            float* y = work_.y + r * work_.y_stride + first;
            if (gated()) {
                row_kernels_.silu_mul(y, y + count_ * lanes, columns, fusion_.gated.row_data(r) + first);
            } else {
                row_kernels_.add(y, columns, fusion_.sum.row_data(r) + first);
            }
        }
    }

    bool gated() const { return fusion_.gated.data != nullptr; }

    void run_chosen(MatmulWork work, int begin, int end) const {
        const std::span<const int>& chosen = *fusion_.chosen;
        float* const y = work.y;
        for_each_run(chosen, begin, end, [&](int first, int last, int index) {
            const int after = index + last - first;
            PrefetchState stream = make_prefetch_state(work.weights, block_, first, last);
            if (after < end) stream.next = at(chosen[after]);
            work.stream = &stream;
            work.y = y + std::ptrdiff_t{index - first} * lanes;
            kernel_(work, first, last);
        });
    }

    ThreadPool& pool_;
    const MatmulKernels& kernels_;
    const RowKernels& row_kernels_;
    const MatmulBlocks kernel_;
    const std::size_t block_;
    const FusionSpec& fusion_;
    const ProductInput activations_;
    int count_ = 0;
    MatmulWork work_;
    std::byte* shared_ = nullptr;
    bool streamed_ = false;
};

/// Returns `x`, normalised if requested, in memory shared by the threads.
}  // namespace

void matmul(ThreadPool& pool, const Matrix& weights, Rows<const float> x, Rows<float> y, const float* bias) {
    assert(x.cols == weights.k() && y.cols == weights.n() && x.rows == y.rows);
    if (x.rows == 0 || weights.n() == 0) return;
    if (weights.on_device()) return DeviceMatrixAccess::matmul(weights, x, y, bias);
    FusionSpec around;
    around.bias = bias;
    MatmulTask(pool, weights, x, y, around).run();
}

void prefetch_next(ThreadPool& pool, const Matrix* weights) {
    if (weights == nullptr || weights->data() == nullptr) return pool.set_next_weights({});
    pool.set_next_weights(
        {weights->data(), block_bytes(weights->precision(), weights->k()), ceil_div(weights->n(), lanes)});
}

void prefetch_next_gated(ThreadPool& pool, const Matrix& gate_up) {
    if (gate_up.data() == nullptr || !gate_is_block_aligned(gate_up)) return prefetch_next(pool, &gate_up);
    pool.set_next_weights(
        {gate_up.data(), block_bytes(gate_up.precision(), gate_up.k()), gate_up.n() / lanes / 2});
}

void matmul_blocks(ThreadPool& pool, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y) {
    assert(x.cols == weights.k() && y.cols == static_cast<int>(blocks.size()) * lanes && x.rows == y.rows);
    if (x.rows == 0 || blocks.empty()) return;
    FusionSpec around;
    around.chosen = &blocks;
    MatmulTask(pool, weights, x, y, around).run();
}

void norm_matmul(ThreadPool& pool, const Matrix& weights, const PreNorm& norm, Rows<const float> x,
                 Rows<float> y, const float* bias) {
    assert(x.cols == weights.k() && y.cols == weights.n() && x.rows == y.rows);
    if (x.rows == 0 || weights.n() == 0) return;
    FusionSpec around;
    around.norm = norm;
    around.bias = bias;
    MatmulTask(pool, weights, x, y, around).run();
}

void norm_matmul_silu(ThreadPool& pool, const Matrix& gate_up, const PreNorm& norm, Rows<const float> x,
                      Rows<float> y, Rows<float> out) {
    assert(x.cols == gate_up.k() && y.cols == gate_up.n() && x.rows == y.rows && gate_up.n() % 2 == 0);
    assert(out.rows == y.rows && 2 * out.cols == y.cols);
    if (x.rows == 0 || gate_up.n() == 0) return;
    if (!gate_is_block_aligned(gate_up)) {
        const int half = gate_up.n() / 2;
        norm_matmul(pool, gate_up, norm, x, y);
        return silu_mul(pool, Rows<const float>(y.data, y.rows, half, y.stride),
                        Rows<const float>(y.data + half, y.rows, half, y.stride), out);
    }
    FusionSpec around;
    around.norm = norm;
    around.gated = out;
    MatmulTask(pool, gate_up, x, y, around).run();
}

void matmul_add(ThreadPool& pool, const Matrix& weights, Rows<const float> x, Rows<float> product,
                Rows<float> sum) {
    assert(x.cols == weights.k() && product.cols == weights.n() && x.rows == product.rows);
    assert(sum.rows == product.rows && sum.cols == product.cols);
    if (x.rows == 0 || weights.n() == 0) return;
    FusionSpec around;
    around.sum = sum;
    MatmulTask(pool, weights, x, product, around).run();
}

}  // namespace draftscope::kernels
