#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/packing.h"
#include "kernels/row_major_matrix.h"

/// Implements the ops of matrix.h, matmul.h and row_major_matrix.h for matrices in device memory.
namespace draftscope::kernels {

struct DeviceMatrixAccess {
    static Matrix pack(Backend& backend, int n, int k, RowSource source);
    static std::optional<Matrix> pack_random(Backend& backend, int k, std::span<const RandomRows> parts);
    static Matrix gather_rows(const Matrix& from, std::span<const TokenId> ids);
    static void unpack_row(const Matrix& from, int row, std::span<float> out);
    /// Multiplies rows in host memory and waits for the result; `bias` [n] may be null. If device memory runs
    /// out, `y` is unchanged.
    static void matmul(const Matrix& weights, Rows<const float> x, Rows<float> y, const float* bias);
    /// Replaces `matrix` by one with capacity for `rows` rows of `k` values. If memory runs out, it has no
    /// data, and Backend::set_out_of_memory() is called. pack() and gather_rows() call Backend::set_error().
    static void reserve_rows(Matrix& matrix, Backend& backend, int rows, int k);
    /// Enqueues the copy of the rows `ids` of `from` to the first rows of `to`, whose capacity must suffice.
    static void fill(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids);
    /// fill() on the side stream; join it before `to` is read. The device keeps ascending `ids` as a bit
    /// set, so that only changes are uploaded. Other `ids` are copied by fill().
    static void fill_async(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids,
                           DeviceIndexSet& set);

  private:
    // The caller holds Backend::submit_mutex().
    /// Allocates `matrix` without filling its rows. Returns a message if memory runs out, else "".
    static std::string allocate(Backend& backend, int rows, int k, Matrix& matrix);
    /// Enqueues fill(). Returns false if memory runs out.
    static bool enqueue_gather(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids);
    static bool set_rows(Matrix& to, const DeviceMatrix& from, std::size_t rows);
};

}  // namespace draftscope::kernels
