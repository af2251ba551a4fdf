#pragma once

#include <bit>
#include <cstdint>

/// Conversions between float and the 16-bit formats of weights, caches, files and devices.
namespace draftscope::kernels {

/// The 16-bit format of a device: bf16, or fp16 for checkpoints trained in fp16.
enum class Float16Kind : std::uint8_t { bf16, f16 };

/// Nearest fp16, ties to even. Values that are too large become infinite; NaN stays NaN.
constexpr std::uint16_t float_to_f16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const std::uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (size >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    const std::uint32_t exponent = size >> 23;
    // The mantissa with its leading one, and the number of bits to drop.
    const std::uint32_t mantissa = (size & 0x7fffffu) | 0x800000u;
    const bool small = exponent < 113;  // below 2^-14 the exponent stays and the mantissa shifts
    const std::uint32_t drop = small ? 13 + (113 - exponent) : 13;
    if (drop > 24) return sign;
    const std::uint32_t high = mantissa >> drop, rest = mantissa & ((1u << drop) - 1),
                        half = 1u << (drop - 1);
    std::uint32_t rounded = high + (rest > half || (rest == half && (high & 1u) != 0) ? 1u : 0u);
    // A carry out of the mantissa increments the exponent.
    if (!small) rounded += (exponent - 113) << 10;
    return static_cast<std::uint16_t>(sign | rounded);
}
/// As float_to_f16(), but limited to the largest finite value, also for NaN.
constexpr std::uint16_t to_clamped_f16(float value) {
    return float_to_f16(value < 65504.0f ? value > -65504.0f ? value : -65504.0f : 65504.0f);
}
constexpr float f16_to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
        const float value = static_cast<float>(mantissa) * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

/// Nearest bf16, ties to even; NaN stays NaN.
constexpr std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
constexpr float from_bf16(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

}  // namespace draftscope::kernels
