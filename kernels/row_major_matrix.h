#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/numel.h"
#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// The rows of a matrix in row-major order, for heads that read scattered rows. In a packed matrix a row is
/// stored in 4-byte pieces, 64 bytes apart, so reading one row moves sixteen times its bytes. On the CPU this
/// is a second copy of the weights. On a device it refers to the matrix, which must outlive it.
class RowMajorMatrix {
  public:
    RowMajorMatrix() = default;
    static RowMajorMatrix make(ThreadPool& pool, const Matrix& matrix);

    int n() const { return n_; }
    int k() const { return k_; }
    Packing packing() const { return packing_; }
    bool empty() const { return n_ == 0; }
    bool on_device() const { return backend_ != nullptr; }
    /// The device of rows with on_device().
    Backend& device() const { return *backend_; }
    /// These rows as an operand of ops. They must not move while the operand is in use.
    DeviceMatrix device_matrix() const {
        return on_device() ? on_device_ : DeviceMatrix{nullptr, n_, k_, padded_columns(k_), nullptr, this};
    }
    std::size_t row_bytes() const { return row_bytes_; }  ///< bytes that reading one row moves
    /// Row `row` in host memory, in the layout of kernels/cpu/matmul/row_layout.h.
    const std::byte* row(int row) const { return data_.get() + numel(row, row_bytes_); }

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    std::size_t row_bytes_ = 0;
    int n_ = 0;
    int k_ = 0;
    Packing packing_;
    Backend* backend_ = nullptr;
    DeviceMatrix on_device_;
};

/// y[M, ids] = x[M, K] * W[ids, K]^T for scattered rows of the store, in the order of `ids`. Each row is read
/// once for all M rows of x and is packed only in cache. Bit-identical to those outputs of matmul() over the
/// whole matrix (indexed product of SpecVocab, arXiv 2602.13836, section 3).
void matmul_rows(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids,
                 Rows<const float> x, Rows<float> y);

/// The device's index set of gathered rows. Only differences are uploaded.
struct DeviceIndexSet {
    DeviceArray<std::uint32_t> bits;
    DeviceArray<std::int32_t> list, toggled;
    std::vector<std::int32_t> host_list;  ///< the host's copy, ascending
    int range = 0;
};

/// A matrix of gathered rows that can be refilled in the same memory.
class GatheredMatrix {
  public:
    /// Makes room for `rows` rows of `store`. Otherwise fill() does so, with some to spare.
    void reserve(const RowMajorMatrix& store, int rows);
    /// Copies the rows `ids` of `store`, in that order, with the same bits as in the whole matrix.
    void fill(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids);
    /// fill() on the device's side stream, concurrently with other work. Ops that read the old rows must be
    /// enqueued before this call; call Backend::join_side_stream() before reading the new ones.
    void fill_async(ThreadPool& pool, const RowMajorMatrix& store, std::span<const TokenId> ids);
    const Matrix& matrix() const { return matrix_; }
    int n() const { return matrix_.n(); }

  private:
    Matrix matrix_;
    DeviceIndexSet set_;
    int capacity_ = 0;              ///< rows that fit in the memory
    std::vector<std::byte> zeros_;  ///< a row of zeros that pads a block, and its alignment
};

}  // namespace draftscope::kernels
