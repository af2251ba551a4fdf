#include "kernels/row_major_matrix.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/numel.h"
#include "kernels/backend/device_matrix.h"
#include "kernels/cpu/matmul/row_layout.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/weight_memory.h"

namespace draftscope::kernels {
namespace {

/// Address of block `block` of a packed matrix of `n` rows.
struct BlockAddress {
    BlockAddress(const std::byte* data, Packing packing, int n, int k, int block) {
        const std::size_t b = block;
        const std::size_t size = block_bytes(packing.precision, k);
        values = reinterpret_cast<const std::uint32_t*>(data + b * size);
        scales = reinterpret_cast<const std::uint16_t*>(data + numel(ceil_div(n, lanes), size) +
                                                        b * scale_bytes(packing, k));
    }
    const std::uint32_t* values;
    const std::uint16_t* scales;
};

/// The first address in `bytes` at which a row may begin.
const std::byte* aligned(const std::vector<std::byte>& bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (RowShape::alignment - at % RowShape::alignment) % RowShape::alignment;
}

}  // namespace

Interleave16 interleave_for(const ThreadPool& pool) {
#if defined(DS_KERNELS_X86)
    if (pool.isa() >= Isa::avx512) return interleave16_avx512;
#endif
    (void)pool;
    return interleave16_portable;
}

void interleave16_portable(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                           const std::uint32_t* const* ahead) {
    for (int g = 0; ahead != nullptr && g < groups; g += RowShape::alignment / sizeof(std::uint32_t))
        for (int r = 0; r < lanes; ++r) __builtin_prefetch(ahead[r] + g, 0, 2);
    for (int g = 0; g < groups; ++g)
        for (int r = 0; r < lanes; ++r) out[g * lanes + r] = rows[r][g];
}

void RowMajorMatrix::Free::operator()(std::byte* p) const {
    free_weights(p);
}

void MatrixAccess::set_rows(Matrix& matrix, int n) {
    matrix.n_ = n;
    matrix.bytes_ = ceil_div(n, lanes) * (block_bytes(matrix.packing_.precision, matrix.k_) +
                                          scale_bytes(matrix.packing_, matrix.k_));
}

RowMajorMatrix RowMajorMatrix::make(ThreadPool& pool, const Matrix& matrix) {
    const RowShape shape(matrix.packing(), matrix.k());
    RowMajorMatrix store;
    store.n_ = matrix.n();
    store.k_ = matrix.k();
    store.packing_ = matrix.packing();
    if (matrix.on_device()) {
        // A device matrix is already row-major.
        store.backend_ = &matrix.device();
        store.on_device_ = matrix.device_matrix();
        store.row_bytes_ = store.on_device_.stride * sizeof(half_t);
        return store;
    }
    store.row_bytes_ = shape.bytes();
    store.data_.reset(allocate_weights(store.row_bytes_ * store.n_));
    split_range(
        pool, ceil_div(store.n_, lanes), std::int64_t{store.n_} * store.k_, [&](int, int begin, int end) {
            for (int row = begin * lanes; row < std::min(end * lanes, store.n_); ++row) {
                const BlockAddress from(matrix.data(), store.packing_, store.n_, store.k_, row / lanes);
                std::byte* to = store.data_.get() + numel(row, store.row_bytes_);
                const std::size_t lane = row % lanes;
                for (std::size_t g = 0; g < shape.groups; ++g)
                    std::memcpy(to + 4 * g, &from.values[g * lanes + lane], 4);
                to += 4 * shape.groups;
                for (std::size_t s = 0; s < shape.scales; ++s)
                    std::memcpy(to + 2 * s, &from.scales[s * lanes + lane], 2);
            }
        });
    return store;
}

/// Returns true if the rows are on a device, which then has memory for them.
void GatheredMatrix::reserve(const RowMajorMatrix& store, int rows) {
    if (rows <= capacity_ && matrix_.k() == store.k() && matrix_.on_device() == store.on_device() &&
        (store.on_device() || matrix_.packing() == store.packing()))
        return;
    capacity_ = round_up(rows, lanes);
    if (store.on_device())
        return DeviceMatrixAccess::reserve_rows(matrix_, store.device(), capacity_, store.k());
    matrix_ = MatrixAccess::allocate(store.packing(), capacity_, store.k());
    zeros_.assign(store.row_bytes() + RowShape::alignment, std::byte{0});
}

void GatheredMatrix::fill_async(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids) {
    if (!store.on_device()) return fill(pool, store, ids);
    const int n = static_cast<int>(ids.size());
    reserve(store, n > capacity_ ? n + n / 4 : n);
    DeviceMatrixAccess::fill_async(matrix_, store.device_matrix(), ids, set_);
}

void GatheredMatrix::fill(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids) {
    const int n = static_cast<int>(ids.size());
    reserve(store, n > capacity_ ? n + n / 4 : n);
    if (store.on_device()) return DeviceMatrixAccess::fill(matrix_, store.device_matrix(), ids);
    MatrixAccess::set_rows(matrix_, n);
    const RowShape shape(store.packing(), store.k());
    const Interleave16 interleave = interleave_for(pool);
    split_range(pool, ceil_div(n, lanes), std::int64_t{n} * store.k(), [&](int, int begin, int end) {
        // A padding row is zeros. What interleave reads past a row's groups are its own scales and padding.
        const std::byte* const zeros = aligned(zeros_);
        const auto row_address = [&](int index) { return index < n ? store.row(ids[index]) : zeros; };
        for (int block = begin; block < end; ++block) {
            const BlockAddress address(matrix_.data(), store.packing(), n, store.k(), block);
            auto* values = const_cast<std::uint32_t*>(address.values);
            auto* scales = const_cast<std::uint16_t*>(address.scales);
            const std::uint32_t *rows[lanes], *next[lanes];
            for (int lane = 0; lane < lanes; ++lane) {
                assert(block * lanes + lane >= n ||
                       (ids[block * lanes + lane] >= 0 && ids[block * lanes + lane] < store.n()));
                rows[lane] = reinterpret_cast<const std::uint32_t*>(row_address(block * lanes + lane));
                // Rows are scattered, so the hardware cannot predict the next block's.
                next[lane] = reinterpret_cast<const std::uint32_t*>(row_address((block + 1) * lanes + lane));
            }
            write_block(interleave, shape, rows, values, scales, next);
        }
    });
}

}  // namespace draftscope::kernels
