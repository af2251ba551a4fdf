#include <algorithm>
#include <array>
#include <cassert>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/gathered.h"
#include "kernels/cpu/matmul/row_layout.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/threads/work_stealing.h"
#include "kernels/row_major_matrix.h"

namespace draftscope::kernels {
namespace {

/// Blocks of 16 rows that are copied to tile order before one call of the matmul kernel. bf16 tiles need
/// four, and configuring tiles costs as much as a short block.
constexpr int blocks_per_call = 4;
/// Prefetch distance into L2, because the hardware cannot predict scattered rows. With less than most of the
/// L1 size, reads were a quarter slower (Sapphire Rapids class, 48 KiB).
constexpr std::size_t prefetch_distance = 40 << 10;

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + RowShape::alignment - 1) / RowShape::alignment * RowShape::alignment;
}

int prefetch_rows(const RowMajorMatrix& store) {
    return std::clamp(static_cast<int>(prefetch_distance / store.row_bytes()), lanes,
                      blocks_per_call * lanes);
}

/// One thread's share: blocks [begin, end) of 16 rows of `ids`, copied to tile order.
class GatheredBlocks {
  public:
    GatheredBlocks(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids)
        : store_(store),
          ids_(ids),
          shape_(store.packing(), store.k()),
          interleave_(interleave_for(pool)),
          block_(block_bytes(store.packing().precision, store.k())),
          scales_(scale_bytes(store.packing(), store.k())),
          rows_ahead_(prefetch_rows(store)) {}

    std::size_t scratch_bytes() const {
        return aligned(blocks_per_call * block_) + aligned(tile_bytes) + aligned(blocks_per_call * scales_);
    }

    void run(MatmulBlocks kernel, MatmulWork work, std::byte* scratch, int begin, int end) const {
        auto* values = scratch;
        auto* scales = scratch + aligned(blocks_per_call * block_) + aligned(tile_bytes);
        float* const y = work.y;
        work.weights = values;
        work.scales = reinterpret_cast<const std::uint16_t*>(scales);
        const int last = std::min(end * lanes, static_cast<int>(ids_.size()));
        for (int index = begin * lanes; index < std::min(begin * lanes + rows_ahead_, last); ++index)
            prefetch_row(row(index), store_.row_bytes());
        for (int first = begin; first < end; first += blocks_per_call) {
            const int count = std::min(blocks_per_call, end - first);
            for (int b = 0; b < count; ++b) fill(values, scales, b, (first + b) * lanes, last);
            work.n = std::min(count * lanes, static_cast<int>(ids_.size()) - first * lanes);
            work.y = y + std::ptrdiff_t{first} * lanes;
            kernel(work, 0, count);
        }
    }

  private:
    const std::byte* row(int index) const { return store_.row(ids_[index]); }

    /// Fills block `b` of the scratch from the rows at `index`. Lanes past the last row repeat it; their
    /// outputs are not stored.
    void fill(std::byte* values, std::byte* scales, int b, int index, int last) const {
        std::array<const std::uint32_t*, lanes> rows, ahead;
        for (int lane = 0; lane < lanes; ++lane) {
            const int at = index + lane;
            const auto groups_of = [&](int row_index) {
                return reinterpret_cast<const std::uint32_t*>(row(std::min(row_index, last - 1)));
            };
            rows[lane] = groups_of(at);
            ahead[lane] = groups_of(at + rows_ahead_);
        }
        const std::size_t offset = b;
        write_block(interleave_, shape_, rows.data(),
                    reinterpret_cast<std::uint32_t*>(values + offset * block_),
                    reinterpret_cast<std::uint16_t*>(scales + offset * scales_),
                    index + rows_ahead_ < last ? ahead.data() : nullptr);
    }

    const RowMajorMatrix& store_;
    std::span<const TokenId> ids_;
    RowShape shape_;
    Interleave16 interleave_;
    std::size_t block_, scales_;
    int rows_ahead_;
};

/// The most rows of activations for which a bf16 tile multiplies stored rows directly. For more, copying the
/// rows to tile order once is cheaper than reading them twice.
constexpr int max_bf16_gathered_rows = 8;

const GatheredKernel* gathered_kernel(const MatmulKernels& kernels, Packing packing, int rows) {
    if (packing.precision == Precision::int8) return kernels.gathered_int8;
    if (packing.precision == Precision::bf16 && rows <= max_bf16_gathered_rows) return kernels.gathered_bf16;
    return nullptr;
}

/// Minimum number of blocks in a piece: the first rows of each piece are not prefetched.
constexpr int min_piece_blocks = 16;

/// Inputs for multiplying stored rows directly. `scratch` holds x_bytes() and scratch_bytes().
GatheredWork gathered_work(const GatheredKernel& kernel, const MatmulWork& work, const RowMajorMatrix& store,
                           std::span<const TokenId> ids, std::byte* scratch) {
    GatheredWork gathered;
    gathered.store = store.row(0);
    gathered.row_bytes = store.row_bytes();
    gathered.ids = ids.data();
    gathered.count = static_cast<int>(ids.size());
    gathered.k = work.k;
    gathered.rows = work.rows;
    gathered.x = scratch;
    gathered.scratch = scratch + aligned(kernel.x_bytes(work.k, work.rows));
    gathered.rows_ahead = prefetch_rows(store);
    gathered.y = work.y;
    gathered.y_stride = work.y_stride;
    kernel.prepare(work, scratch);
    return gathered;
}

}  // namespace

void matmul_rows(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids,
                 Rows<const float> x, Rows<float> y) {
    assert(x.cols == store.k() && y.cols == static_cast<int>(ids.size()) && x.rows == y.rows);
    if (x.rows == 0 || ids.empty()) return;
    const MatmulKernels& kernels = matmul_kernels_for(pool.isa());
    const MatmulBlocks kernel = blocks_kernel(kernels, store.packing());
    MatmulWork work;
    work.k = store.k();
    work.rows = x.rows;
    work.x = x.data;
    work.x_stride = x.stride;
    work.y = y.data;
    work.y_stride = y.stride;
    const ProductInput activations(kernels, store.packing().precision, x);
    std::byte* shared = nullptr;
    if (activations.needed() && x.rows > max_rows_quantised_per_thread) {
        shared = pool.shared_scratch(activations.bytes());
        split_range(pool, x.rows, std::int64_t{x.rows} * x.cols,
                    [&](int, int begin, int end) { activations.prepare(shared, begin, end); });
    }
    const GatheredBlocks blocks(pool, store, ids);
    // Reading a scattered row costs as much as the products of about four rows.
    constexpr int rows_of_reading = 4;
    const std::int64_t operations =
        static_cast<std::int64_t>(ids.size()) * store.k() * (x.rows + rows_of_reading);
    const GatheredKernel* gathered = gathered_kernel(kernels, store.packing(), x.rows);
    const std::size_t scratch_bytes = gathered == nullptr
                                          ? blocks.scratch_bytes()
                                          : aligned(gathered->x_bytes(work.k, work.rows)) +
                                                gathered->scratch_bytes(work.k, store.row_bytes());
    const int count = ceil_div(static_cast<int>(ids.size()), lanes);
    WorkStealingRange shares(count, WorkStealingRange::threads_for(pool, count, operations),
                             min_piece_blocks);
    run_threads(pool, shares.threads(), [&](int thread) {
        if (!shares.has_work()) return;
        const std::size_t x_bytes = shared == nullptr ? aligned(activations.bytes()) : 0;
        std::byte* buffer = pool.scratch(thread, x_bytes + scratch_bytes);
        MatmulWork thread_work = work;
        if (activations.needed() && shared == nullptr) activations.prepare(buffer, 0, x.rows);
        activations.point(thread_work, shared == nullptr ? buffer : shared);
        GatheredWork thread_gathered;
        if (gathered != nullptr)
            thread_gathered = gathered_work(*gathered, thread_work, store, ids, buffer + x_bytes);
        shares.take_all(thread, [&](int begin, int end, bool) {
            if (gathered != nullptr) return gathered->run(thread_gathered, begin, end);
            blocks.run(kernel, thread_work, buffer + x_bytes, begin, end);
        });
    });
}

}  // namespace draftscope::kernels
