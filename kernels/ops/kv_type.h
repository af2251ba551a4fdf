#pragma once

#include <cstddef>
#include <cstdint>

namespace draftscope::kernels {

/// Storage type of cached keys and values. 16 bits halve the cost of a long context; sums are in f32 either
/// way.
enum class KvType : std::uint8_t { f32, f16 };
constexpr std::size_t bytes_per_value(KvType type) {
    return type == KvType::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

}  // namespace draftscope::kernels
