#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/row_major_matrix.h"

/// The ops of matrix.h, matmul.h and row_major_matrix.h for matrices that lie on a device.
namespace draftscope::kernels {

struct DeviceMatrixAccess {
    static Matrix pack(Exec& exec, Device& device, int n, int k, RowSource source);
    static Matrix gather_rows(const Matrix& from, std::span<const TokenId> ids);
    static void unpack_row(const Matrix& from, int row, std::span<float> out);
    /// `blocks` null: all outputs; else blocks of 16, as matmul_blocks() has them.
    static void matmul(const Matrix& weights, const std::span<const int>* blocks, Rows<const float> x,
                       Rows<float> y, const float* bias);
    /// Outputs `ids` of `weights`, in that order: y is [x.rows, ids].
    static void matmul_rows(Device& device, const DeviceMatrix& weights, std::span<const TokenId> ids,
                            Rows<const float> x, Rows<float> y);
    /// `matrix` becomes one with room for `rows` rows of `k` values, or of none: memory that is out is
    /// refused here, an error of the device in pack() and gather_rows().
    static void reserve_rows(Matrix& matrix, Device& device, int rows, int k);
    /// Rows `ids` of `from` become the first rows of `to`, which has room for them.
    static void fill(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids);
    /// The same on the queue beside the device's own; join() comes before `to` is read. Where `ids` rise, the
    /// device keeps them as a set of bits, and what entered or left it is all that is sent.
    static void fill_async(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids,
                           DeviceIndexSet& set);
    static void join(Device& device);

  private:
    // The caller holds Device::busy().
    /// `matrix` becomes one of rows that are not filled yet; says what there is no memory for.
    static std::string allocate(Device& device, int rows, int k, Matrix& matrix);
    /// fill(); false where memory is out.
    static bool ask_gather(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids);
    static bool set_rows(Matrix& to, const DeviceMatrix& from, std::size_t rows);
    /// `chosen` null: all outputs, else its first value says how many follow.
    static void run(Device& device, const DeviceMatrix& weights, const std::vector<std::int32_t>* chosen,
                    Rows<const float> x, Rows<float> y, const float* bias);
};

}  // namespace draftscope::kernels
