#include <cassert>

#include "kernels/cpu/matmul/layout.h"
#include "kernels/packing.h"

namespace draftscope::kernels {

std::uint32_t packing_layout(Precision precision) {
    switch (precision) {
        case Precision::f32:
            return f32_layout;
        case Precision::bf16:
            return bf16_layout;
        case Precision::int8:
            return int8_layout;
        case Precision::int4:
            return int4_layout;
    }
    return 0;
}

PackedShape packed_shape(const Matrix& matrix) {
    const std::uint32_t layout =
        matrix.packing().symmetric ? int4_symmetric_layout : packing_layout(matrix.precision());
    return {matrix.precision(), matrix.n(), matrix.k(), layout};
}

std::span<const std::byte> packed_bytes(const Matrix& matrix) {
    assert(!matrix.on_device());
    return {matrix.data(), matrix.bytes()};
}

Matrix allocate_packed(const PackedShape& shape, std::span<std::byte>* bytes) {
    const bool symmetric = shape.precision == Precision::int4 && shape.layout == int4_symmetric_layout;
    if (!symmetric && shape.layout != packing_layout(shape.precision)) return {};
    Matrix matrix = MatrixAccess::allocate({shape.precision, symmetric}, shape.n, shape.k);
    *bytes = {const_cast<std::byte*>(matrix.data()), matrix.bytes()};
    return matrix;
}

}  // namespace draftscope::kernels
