#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// The rows of a matrix one after the other, for heads that read scattered ones: in a packed matrix a row
/// lies in 4-byte pieces 64 bytes apart, so that reading it alone moves sixteen times its bytes. A second
/// copy of the weights, made on purpose; on a device it is the matrix itself, which has to stay alive.
class RowStore {
  public:
    RowStore() = default;
    static RowStore make(Exec& exec, const Matrix& matrix);

    int n() const { return n_; }
    int k() const { return k_; }
    Packing packing() const { return packing_; }
    bool empty() const { return n_ == 0; }
    bool on_device() const { return device_ != nullptr; }
    const DeviceMatrix& device_matrix() const { return on_device_; }  ///< of a store on a device
    std::size_t row_bytes() const { return row_bytes_; }              ///< what reading one row moves

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    std::size_t row_bytes_ = 0;
    int n_ = 0;
    int k_ = 0;
    Packing packing_;
    Device* device_ = nullptr;
    DeviceMatrix on_device_;
    friend class PackedRows;
    friend struct RowStoreAccess;
};

/// y[M, ids] = x[M, K] * W[ids, K]^T over scattered rows of the store, in the order of `ids`. Every row is
/// read once for all M rows of x and packed nowhere but in the caches. Bit-identical to those outputs of
/// matmul() over the whole matrix (SpecVocab's indexed product, arXiv 2602.13836, section 3).
void matmul_rows(Exec& exec, const RowStore& store, std::span<const TokenId> ids, Rows<const float> x,
                 Rows<float> y);

/// Which rows lie packed, as a device knows it; only what changes travels.
struct DeviceRowSet {
    DeviceBuffer bits, list, toggled;
    std::vector<std::int32_t> here;  ///< the same, rising
    int range = 0;
};

/// A matrix of chosen rows that is filled again and again, its memory kept.
class PackedRows {
  public:
    /// The rows `ids` of `store`, in that order, bit for bit as matmul over the whole matrix sees them.
    void fill(Exec& exec, const RowStore& store, std::span<const TokenId> ids);
    /// The same; on a device beside what it does otherwise, until join(). What is read of the rows before it
    /// has been asked for by then, and join() comes before anything of them is read again.
    void fill_aside(Exec& exec, const RowStore& store, std::span<const TokenId> ids);
    void join() const;
    const Matrix& matrix() const { return matrix_; }
    int n() const { return matrix_.n(); }

  private:
    bool make_room(const RowStore& store, int rows);
    Matrix matrix_;
    DeviceRowSet set_;
    int capacity_ = 0;              ///< rows that the memory holds
    std::vector<std::byte> zeros_;  ///< a row that only fills a block, and what aligns it
};

}  // namespace draftscope::kernels
