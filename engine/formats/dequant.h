#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/packing.h"

namespace draftscope {

/// The number of a type that GGUF files do not have.
inline constexpr std::uint32_t no_gguf_type = ~std::uint32_t{0};

/// A storage type of tensors. A row of K elements takes K / block_elements * block_bytes bytes; K must be a
/// multiple of block_elements.
struct TensorType {
    std::uint32_t id;       ///< number in GGUF files
    std::string_view name;  ///< "Q4_1"; of plain types safetensors' name, too
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
    /// Decodes `blocks` blocks into floats. Null if the type is known by name only.
    void (*dequantise)(const std::uint8_t* data, std::int64_t blocks, float* out);
    bool quantised;  ///< smaller than 16 bits per weight
    /// Reads `count` integers exactly. Null if the type holds none.
    void (*integers)(const std::uint8_t* data, std::int64_t count, std::int64_t* out) = nullptr;
    bool in_gguf = true;  ///< is read in GGUF files if it has a decoder
};

/// Returns null for an unknown number.
const TensorType* find_gguf_tensor_type(std::uint32_t id);
/// Returns a type with one element a block by name; null if this version reads none of that name.
const TensorType* find_plain_type(std::string_view name);
/// Returns the bytes of a tensor, whose extents must not be negative; nullopt on overflow.
std::optional<std::uint64_t> stored_bytes(const TensorType& type, std::span<const std::int64_t> shape);
/// The types of weights in GGUF files, ordered by number.
std::span<const TensorType> readable_tensor_types();

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

/// Whether a type has four bits and a scale per 32 weights, which int4 holds: Q4_0, Q4_1, Q4_K.
bool has_four_bits(std::string_view type);
/// Unpacks a row of such a type without quantising again; returns false for other types. Scales and minimums
/// of Q4_K are rounded to f16.
bool unpack_int4(const TensorType& type, const std::uint8_t* data, const kernels::Int4Row& out);

}  // namespace draftscope
