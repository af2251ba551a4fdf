#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/matrix.h"
#include "kernels/ops/float16.h"
#include "kernels/ops/random_values.h"

/// Packing matrices from other sources than rows of floats, and packed matrices as bytes for storing them in
/// files.
namespace draftscope::kernels {

/// Returns the address of row `row` of K bf16 values, at any alignment. Pool threads call it.
using Bf16Source = FunctionRef<const void*(int row)>;

/// Packs rows that are stored in bf16, like Matrix::pack() in bf16 but at memory speed.
Matrix pack_bf16(Backend& backend, int n, int k, Bf16Source stored);

/// A row of K weights in four bits.
struct Int4Row {
    std::span<std::uint8_t> q;          ///< [K], 0 .. 15
    std::span<std::uint16_t> scales;    ///< [K / 32 rounded up], f16 bits
    std::span<std::uint16_t> minimums;  ///< as scales
};
/// Fills `out` with a row's stored values. Returns false if the row is not stored in four bits.
using Int4Source = FunctionRef<bool(int row, const Int4Row& out)>;

/// Packs a matrix in int4. Rows come from `stored` if stored in four bits, else they are quantised from
/// `source`. Minimums are omitted if every row's are -8 times the scales, as in Q4_0. Finding out may read
/// rows twice.
Matrix pack_int4(ThreadPool& pool, int n, int k, RowSource source, Int4Source stored);

/// Rows with generated values, numbered from 0.
struct RandomRows {
    int rows = 0;
    RandomValues values;
};

/// Makes a device matrix of `parts`, stacked vertically, without values from the host. Its bits are those of
/// Matrix::pack(). Returns nullopt if the matrix is not for a device, or for one that cannot generate values.
std::optional<Matrix> pack_random(Backend& backend, int k, std::span<const RandomRows> parts);

/// Identifies how a packed matrix is stored.
struct PackedShape {
    Precision precision = Precision::f32;
    int n = 0, k = 0;
    /// Identifies the byte layout within the precision (kernels/cpu/matmul/layout.h), independent of the
    /// instruction set. It changes whenever the same weights would be packed to other bytes.
    std::uint32_t layout = 0;
};

/// The shape of a matrix in host memory.
PackedShape packed_shape(const Matrix& matrix);
/// The bytes of a matrix in host memory.
std::span<const std::byte> packed_bytes(const Matrix& matrix);
/// The layout number that Matrix::pack() produces; symmetric int4 has a different one.
std::uint32_t packing_layout(Precision precision);
/// Creates a matrix whose `bytes` the caller fills with packed_bytes() of an equal shape before using it.
/// Returns an empty matrix for an unknown layout. Sizes must not be negative.
Matrix allocate_packed(const PackedShape& shape, std::span<std::byte>* bytes);

}  // namespace draftscope::kernels
