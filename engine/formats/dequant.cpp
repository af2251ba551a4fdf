#include "engine/formats/dequant.h"

#include <array>
#include <cmath>
#include <type_traits>

#include "base/mapped_file.h"
#include "kernels/ops/float16.h"

// Block layouts of ggml. Every product is rounded before the sum, as in ggml's reference decoders, so the
// results are bit-identical.
namespace draftscope {
namespace {

float load_f16(const std::uint8_t* data) {
    return kernels::f16_to_float(load_unaligned<std::uint16_t>(data));
}

/// f16 d; 32 x i8 q; y = d q.
void q8_0_blocks(const std::uint8_t* data, std::int64_t blocks, float* out) {
    for (std::int64_t b = 0; b < blocks; ++b, data += 34, out += 32) {
        const float d = load_f16(data);
        for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<std::int8_t>(data[2 + j]));
    }
}

/// f16 d; with a minimum f16 m; with 5 bits u32 high bits; 16 bytes, whose low nibbles are the first half;
/// y = d q + m, or d (q - half the range) without a minimum. Bit j of the high bits is the fifth of element
/// j.
template <int Bits, bool WithMinimum>
void nibble_blocks(const std::uint8_t* data, std::int64_t blocks, float* out) {
    constexpr int header = WithMinimum ? 4 : 2, high_bytes = Bits == 5 ? 4 : 0;
    for (std::int64_t b = 0; b < blocks; ++b, data += header + high_bytes + 16, out += 32) {
        const float d = load_f16(data);
        const float m = WithMinimum ? load_f16(data + 2) : 0.0f;
        const auto high = Bits == 5 ? load_unaligned<std::uint32_t>(data + header) : 0;
        const auto decode = [&](int nibble, int j) {
            const int value = Bits == 5 ? nibble | static_cast<int>((high >> j & 1u) << 4) : nibble;
            return WithMinimum ? d * static_cast<float>(value) + m
                               : d * static_cast<float>(value - (1 << (Bits - 1)));
        };
        const std::uint8_t* q = data + header + high_bytes;
        for (int j = 0; j < 16; ++j) {
            out[j] = decode(q[j] & 15, j);
            out[j + 16] = decode(q[j] >> 4, j + 16);
        }
    }
}

/// 6-bit scale and minimum of sub-block j (0..7) from the 12 packed bytes of Q4_K and Q5_K.
struct ScaleMin {
    float scale;
    float min;
};
ScaleMin unpack_scale(const std::uint8_t* s, int j) {
    if (j < 4) return {static_cast<float>(s[j] & 63), static_cast<float>(s[j + 4] & 63)};
    return {static_cast<float>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4),
            static_cast<float>((s[j + 4] >> 4) | (s[j] >> 6) << 4)};
}

/// f16 d; f16 dmin; 12 bytes of scales; 128 bytes: chunk c holds sub-blocks 2c (low nibbles) and 2c + 1;
/// y = d scale q - dmin min. Q5_K has 32 bytes of fifth bits between scales and nibbles: bit `sub` of byte l
/// belongs to element l.
template <bool Q5>
void k_blocks(const std::uint8_t* data, std::int64_t blocks, float* out) {
    for (std::int64_t b = 0; b < blocks; ++b, data += Q5 ? 176 : 144, out += 256) {
        const float d = load_f16(data);
        const float dmin = load_f16(data + 2);
        const std::uint8_t* high = data + 16;
        for (int sub = 0; sub < 8; ++sub) {
            const ScaleMin packed = unpack_scale(data + 4, sub);
            const float scale = d * packed.scale;
            const float min = dmin * packed.min;
            const std::uint8_t* q = data + (Q5 ? 48 : 16) + 32 * (sub / 2);
            for (int l = 0; l < 32; ++l) {
                const int nibble = sub % 2 == 0 ? q[l] & 15 : q[l] >> 4;
                const int value = Q5 ? nibble | (high[l] >> sub & 1) << 4 : nibble;
                out[32 * sub + l] = scale * static_cast<float>(value) - min;
            }
        }
    }
}

/// 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 x i8 scales; f16 d. Two halves of 128 elements,
/// each four groups of 32; y = d scale (q - 32).
void q6_k_blocks(const std::uint8_t* data, std::int64_t blocks, float* out) {
    for (std::int64_t b = 0; b < blocks; ++b, data += 210, out += 256) {
        const float d = load_f16(data + 208);
        for (int half = 0; half < 2; ++half) {
            const std::uint8_t* low = data + 64 * half;
            const std::uint8_t* high = data + 128 + 32 * half;
            const std::uint8_t* scales = data + 192 + 8 * half;
            for (int group = 0; group < 4; ++group) {
                for (int l = 0; l < 32; ++l) {
                    const std::uint8_t packed = low[l + 32 * (group % 2)];
                    const int nibble = group < 2 ? packed & 15 : packed >> 4;
                    const int value = nibble | (high[l] >> (2 * group) & 3) << 4;
                    const auto scale = static_cast<std::int8_t>(scales[l / 16 + 2 * group]);
                    out[128 * half + 32 * group + l] =
                        d * static_cast<float>(scale) * static_cast<float>(value - 32);
                }
            }
        }
    }
}

template <typename T>
void as_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<float>(load_unaligned<T>(data + i * sizeof(T)));
}

template <typename T>
void as_integers(const std::uint8_t* data, std::int64_t count, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<std::int64_t>(load_unaligned<T>(data + i * sizeof(T)));
}

constexpr std::array readable_types = {
    TensorType{0, "F32", 1, 4, decode_f32, false},
    TensorType{1, "F16", 1, 2, decode_f16, false},
    TensorType{2, "Q4_0", 32, 18, nibble_blocks<4, false>, true},
    TensorType{3, "Q4_1", 32, 20, nibble_blocks<4, true>, true},
    TensorType{6, "Q5_0", 32, 22, nibble_blocks<5, false>, true},
    TensorType{7, "Q5_1", 32, 24, nibble_blocks<5, true>, true},
    TensorType{8, "Q8_0", 32, 34, q8_0_blocks, true},
    TensorType{12, "Q4_K", 256, 144, k_blocks<false>, true},
    TensorType{13, "Q5_K", 256, 176, k_blocks<true>, true},
    TensorType{14, "Q6_K", 256, 210, q6_k_blocks, true},
    TensorType{30, "BF16", 1, 2, decode_bf16, false},
};

template <typename T>
constexpr TensorType plain_type(std::uint32_t id, std::string_view name, bool in_gguf = false) {
    return {id,     name, 1, sizeof(T), as_floats<T>, false, std::is_integral_v<T> ? as_integers<T> : nullptr,
            in_gguf};
}

/// Types beyond those of weights: plain ones, of which GGUF files may have id maps only, and types without a
/// decoder, which messages name.
constexpr std::array other_types = {
    plain_type<std::int64_t>(27, "I64", true),
    plain_type<std::int32_t>(26, "I32", true),
    plain_type<std::int16_t>(25, "I16"),
    plain_type<std::int8_t>(24, "I8"),
    plain_type<double>(28, "F64"),
    plain_type<std::uint16_t>(no_gguf_type, "U16"),
    plain_type<std::uint8_t>(no_gguf_type, "U8"),
    plain_type<std::uint8_t>(no_gguf_type, "BOOL"),
    TensorType{9, "Q8_1", 32, 36, nullptr, true},
    TensorType{10, "Q2_K", 256, 84, nullptr, true},
    TensorType{11, "Q3_K", 256, 110, nullptr, true},
    TensorType{15, "Q8_K", 256, 292, nullptr, true},
    TensorType{16, "IQ2_XXS", 256, 66, nullptr, true},
    TensorType{17, "IQ2_XS", 256, 74, nullptr, true},
    TensorType{18, "IQ3_XXS", 256, 98, nullptr, true},
    TensorType{19, "IQ1_S", 256, 50, nullptr, true},
    TensorType{20, "IQ4_NL", 32, 18, nullptr, true},
    TensorType{21, "IQ3_S", 256, 110, nullptr, true},
    TensorType{22, "IQ2_S", 256, 82, nullptr, true},
    TensorType{23, "IQ4_XS", 256, 136, nullptr, true},
    TensorType{29, "IQ1_M", 256, 56, nullptr, true},
    TensorType{34, "TQ1_0", 256, 54, nullptr, true},
    TensorType{35, "TQ2_0", 256, 66, nullptr, true},
    TensorType{39, "MXFP4", 32, 17, nullptr, true},
};

template <typename Matches>
const TensorType* find_type(Matches matches) {
    for (const std::span<const TensorType> types :
         {std::span<const TensorType>(readable_types), std::span<const TensorType>(other_types)})
        for (const TensorType& type : types)
            if (matches(type)) return &type;
    return nullptr;
}

}  // namespace

void decode_f32(const std::uint8_t* data, std::int64_t count, float* out) {
    std::memcpy(out, data, count * sizeof(float));
}
void decode_f16(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = kernels::f16_to_float(load_unaligned<std::uint16_t>(data + 2 * i));
}
void decode_bf16(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = kernels::from_bf16(load_unaligned<std::uint16_t>(data + 2 * i));
}

const TensorType* find_gguf_tensor_type(std::uint32_t id) {
    return find_type([&](const TensorType& type) { return type.id == id && id != no_gguf_type; });
}

const TensorType* find_plain_type(std::string_view name) {
    return find_type([&](const TensorType& type) { return type.name == name && type.block_elements == 1; });
}

std::optional<std::uint64_t> stored_bytes(const TensorType& type, std::span<const std::int64_t> shape) {
    std::optional<std::uint64_t> bytes = type.block_bytes;
    for (std::size_t i = 0; i < shape.size() && bytes; ++i) {
        const auto extent = static_cast<std::uint64_t>(shape[i]);
        bytes = checked_product(*bytes, i + 1 < shape.size() ? extent : extent / type.block_elements);
    }
    return bytes;
}

std::span<const TensorType> readable_tensor_types() {
    return readable_types;
}

namespace {

/// Computes -8 times an f16 exactly; returns false on overflow.
bool minus_eight_times(std::uint16_t bits, std::uint16_t& out) {
    const auto sign = static_cast<std::uint16_t>(~bits & 0x8000u);
    const std::uint32_t size = bits & 0x7fffu;
    constexpr std::uint32_t smallest_normal = 0x400, three_exponents = 0xc00, infinite = 0x7c00;
    std::uint32_t product = size + three_exponents;
    if (size < smallest_normal) {
        // A subnormal is a multiple of 2^-24; eight times its value may be a normal number.
        product = size * 8;
        if (product >= 4 * smallest_normal)
            product = product / 4 + 2 * smallest_normal;
        else if (product >= 2 * smallest_normal)
            product = product / 2 + smallest_normal;
    }
    out = static_cast<std::uint16_t>(sign | product);
    return product < infinite;
}

/// Unpacks super-blocks of 256 weights in eight groups.
bool unpack_q4_k(const std::uint8_t* data, const kernels::Int4Row& out) {
    for (std::size_t group = 0; group < out.scales.size(); ++group) {
        const int sub = static_cast<int>(group % 8);
        const std::uint8_t* block = data + group / 8 * 144;
        const ScaleMin packed = unpack_scale(block + 4, sub);
        const float scale = load_f16(block) * packed.scale, minimum = -load_f16(block + 2) * packed.min;
        constexpr float largest = 65504.0f;
        if (!(std::fabs(scale) <= largest && std::fabs(minimum) <= largest)) return false;
        out.scales[group] = kernels::float_to_f16(scale);
        out.minimums[group] = kernels::float_to_f16(minimum);
        const std::uint8_t* nibbles = block + 16 + 32 * (sub / 2);
        for (std::size_t i = 0; i < 32; ++i)
            out.q[group * 32 + i] = sub % 2 == 0 ? nibbles[i] & 15 : nibbles[i] >> 4;
    }
    return true;
}

}  // namespace

bool has_four_bits(std::string_view type) {
    return type == "Q4_0" || type == "Q4_1" || type == "Q4_K";
}

bool unpack_int4(const TensorType& type, const std::uint8_t* data, const kernels::Int4Row& out) {
    if (!has_four_bits(type.name)) return false;
    if (type.name == "Q4_K") return unpack_q4_k(data, out);
    const bool with_minimum = type.name == "Q4_1";
    constexpr std::size_t half = 16;
    for (std::size_t b = 0; b < out.scales.size(); ++b, data += type.block_bytes) {
        std::uint16_t scale = 0, minimum = 0;
        std::memcpy(&scale, data, sizeof(scale));
        if (with_minimum) {
            std::memcpy(&minimum, data + sizeof(scale), sizeof(minimum));
        } else {
            // Q4_0 starts at -8 steps. Only scales that no real model has overflow here.
            if (!minus_eight_times(scale, minimum)) return false;
        }
        out.scales[b] = scale;
        out.minimums[b] = minimum;
        const std::uint8_t* packed = data + type.block_bytes - half;
        for (std::size_t i = 0; i < half; ++i) {
            out.q[b * 2 * half + i] = packed[i] & 15;
            out.q[b * 2 * half + half + i] = packed[i] >> 4;
        }
    }
    return true;
}

}  // namespace draftscope
