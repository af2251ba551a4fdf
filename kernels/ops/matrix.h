#pragma once

#include <cstdint>

#include "kernels/ops/float16.h"

/// Activations and matrices as operands of ops.
namespace draftscope::kernels {

class Matrix;
class RowMajorMatrix;

/// A 16-bit value of a device: bf16, or fp16 if Backend::dtype() says so.
using half_t = std::uint16_t;

/// Address of activations in the format of their backend: f32 on the CPU, 16 bits on a device.
/// ActivationBuffer has their memory, and Backend::at() counts in them.
union Activations {
    half_t* halves = nullptr;
    float* floats;

    constexpr Activations() = default;
    constexpr Activations(half_t* on_device) : halves(on_device) {}
    constexpr explicit Activations(float* on_cpu) : floats(on_cpu) {}
    constexpr explicit operator bool() const { return halves != nullptr; }
};

/// Weights [n, k], row-major. `stride` is the distance between rows; columns k .. stride - 1 are zero. Rows
/// of activations that the matrix is multiplied with have the same stride.
struct DeviceMatrix {
    const half_t* data = nullptr;
    int n = 0;
    int k = 0;
    int stride = 0;
    // On the CPU, one of these in place of `data`:
    const Matrix* packed = nullptr;
    const RowMajorMatrix* row_major = nullptr;  ///< only for products of selected outputs
};
/// Row stride for `k` bf16 values: a multiple of 64, so that no kernel handles a remainder in k.
constexpr int padded_columns(int k) {
    return (k + 63) / 64 * 64;
}

}  // namespace draftscope::kernels
