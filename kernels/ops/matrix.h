#pragma once

#include <cstdint>

#include "kernels/float16.h"

/// 16-bit values and matrices in device memory.
namespace draftscope::kernels {

using half_t = std::uint16_t;  ///< upper half of a float; fp16 if the device's dtype() says so

/// Weights [n, k], row-major. `stride` is the distance between rows; columns k .. stride - 1 are zero.
struct DeviceMatrix {
    const half_t* data = nullptr;
    int n = 0;
    int k = 0;
    int stride = 0;
};
/// Row stride for `k` bf16 values: a multiple of 64, so that no kernel handles a remainder in k.
constexpr int padded_columns(int k) {
    return (k + 63) / 64 * 64;
}

}  // namespace draftscope::kernels
