#pragma once

#include <cstdint>

namespace draftscope::kernels {

/// A 32-bit hash finaliser (multiply, shift, xor), fast enough for billions of weights.
constexpr std::uint32_t mix_bits(std::uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/// Values of a matrix that depend only on seed, row and column, uniform in +-spread. Host and device generate
/// the same.
struct RandomValues {
    std::uint32_t seed = 0;
    float spread = 0;

    /// The first argument of at() for all values of a row.
    constexpr std::uint32_t start_of(int row) const {
        return mix_bits(seed * 0x9e3779b9u + mix_bits(static_cast<std::uint32_t>(row)));
    }
    constexpr float at(std::uint32_t start, int column) const {
        const auto bits = static_cast<std::int32_t>(mix_bits(start + static_cast<std::uint32_t>(column)));
        return spread / 2147483648.0f * static_cast<float>(bits);
    }
};

}  // namespace draftscope::kernels
