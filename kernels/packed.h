#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matrix.h"

/// Packed matrices as bytes, for storing them in files.
namespace draftscope::kernels {

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
