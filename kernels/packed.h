#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matrix.h"

/// Packed matrices as bytes, to keep them in a file.
namespace draftscope::kernels {

struct PackedShape {
    Precision precision = Precision::f32;
    int n = 0, k = 0;
    /// Names, within the precision, the order of the bytes (kernels/cpu/layout.h); it does not depend on the
    /// instruction set. Another number whenever the same weights would be packed to other bytes.
    std::uint32_t layout = 0;
};

/// Of a matrix in this memory.
PackedShape packed_shape(const Matrix& matrix);
/// Of a matrix in this memory.
std::span<const std::byte> packed_bytes(const Matrix& matrix);
/// The layout that Matrix::pack() gives; symmetric int4 has another.
std::uint32_t packing_layout(Precision precision);
/// A matrix whose `bytes` the caller fills with those of such a matrix before it is used; empty where this
/// version knows no such layout. Sizes must not be negative.
Matrix unfilled_matrix(const PackedShape& shape, std::span<std::byte>* bytes);

}  // namespace draftscope::kernels
