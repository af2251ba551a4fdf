#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/formats/weight_source.h"
#include "kernels/int4.h"

namespace draftscope {

/// A storage type of GGUF tensors. A row of K elements takes K / block_elements * block_bytes bytes; K must
/// be a multiple of block_elements.
struct TensorType {
    std::uint32_t id;       ///< number in the file
    std::string_view name;  ///< "Q4_1"
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
    /// Decodes `blocks` blocks into floats. Null if the type is known by name only.
    void (*dequantise)(const std::uint8_t* data, std::int64_t blocks, float* out);
    bool quantised;  ///< smaller than 16 bits per weight
};

/// Returns null for an unknown number.
const TensorType* find_gguf_tensor_type(std::uint32_t id);
/// Every type with a decoder, ordered by number.
std::span<const TensorType> readable_tensor_types();

inline float bf16_to_f32(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Exact, including subnormals and NaN payloads.
inline float f16_to_f32(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

/// Reads a value at any address.
template <typename T>
T load_unaligned(const std::uint8_t* data) {
    T value;
    std::memcpy(&value, data, sizeof(T));
    return value;
}

/// Decode `count` stored floats.
void decode_f32(const std::uint8_t* data, std::int64_t count, float* out);
void decode_f16(const std::uint8_t* data, std::int64_t count, float* out);
void decode_bf16(const std::uint8_t* data, std::int64_t count, float* out);

/// An optional interface of a WeightSource that returns 4-bit rows without decoding them to floats. Each
/// group of 32 weights has a scale and a minimum (Q4_0, Q4_1).
class Int4Rows {
  public:
    virtual ~Int4Rows() = default;
    /// Unpacks a row's stored bytes; returns false for other tensor types. The buffers in `out` must fit the
    /// row.
    virtual bool decode_int4_row(const TensorInfo& tensor, const std::uint8_t* bytes,
                                 const kernels::Int4Row& out) const = 0;
};

/// Unpacks a row of Q4_0 or Q4_1 without converting to float; returns false for other types.
bool unpack_int4(const TensorType& type, const std::uint8_t* data, const kernels::Int4Row& out);

}  // namespace draftscope
