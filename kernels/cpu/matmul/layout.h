#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/numel.h"
#include "kernels/cpu/matmul/tile.h"
#include "kernels/matrix.h"
#include "kernels/ops/float16.h"
#include "kernels/packing.h"

/// Tile order of packed weights. A block is 16 outputs, so that one 512-bit register holds one value of each.
/// Inputs follow in the groups that one instruction consumes: 1 for f32, 2 for bf16 dot products, 4 for int8
/// dot products. Outputs are padded with zeros to 16, inputs to the group.
/// - f32   [N/16][K][16]                       float
/// - bf16  [N/16][K/2][16][2]                  bf16
/// - int8  [N/16][K/4][16][4]                  K padded to 4
///         then [N/16][K/128][16]              bf16 scale of (output, 128 inputs), K padded to 128
/// - int4  [N/16][K/8][16][4]                  two inputs per byte: low nibbles 8 j .. 8 j + 3, high nibbles
///                                             8 j + 4 .. 8 j + 7; K padded to 32
///         then [N/16][K/32][2][16]            f16 scale and minimum of (output, 32 inputs)
///         symmetric: [N/16][K/32][16]         f16 scale of (output, 32 inputs), its minimum -8 times that
///
/// After the last byte follow tile_bytes that kernels may read.
namespace draftscope::kernels {

/// Layout numbers, stored in files of packed weights (kernels/packed.h). Increment one whenever the packed
/// bytes change.
inline constexpr std::uint32_t f32_layout = 1, bf16_layout = 1, int8_layout = 2, int4_layout = 1,
                               int4_symmetric_layout = 2;

inline constexpr int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
inline constexpr int ceil_div(int value, int size) {
    return (value + size - 1) / size;
}

/// Bytes of one block of 16 outputs, without scales.
inline constexpr std::size_t block_bytes(Precision precision, int k) {
    switch (precision) {
        case Precision::f32:
            return static_cast<std::size_t>(k) * lanes * sizeof(float);
        case Precision::bf16:
            return static_cast<std::size_t>(round_up(k, 2)) * lanes * sizeof(std::uint16_t);
        case Precision::int8:
            return numel(round_up(k, int8_padding), lanes);
        case Precision::int4:
            return static_cast<std::size_t>(round_up(k, int4_block)) / 2 * lanes;
    }
    return 0;
}
/// Bytes of the scales of one block of 16 outputs.
inline constexpr std::size_t scale_bytes(Packing packing, int k) {
    const std::size_t row = packing.symmetric ? 1 : 2;
    if (packing.precision == Precision::int4)
        return ceil_div(k, int4_block) * row * lanes * sizeof(std::uint16_t);
    if (packing.precision != Precision::int8) return 0;
    return static_cast<std::size_t>(ceil_div(k, quant_block)) * lanes * sizeof(std::uint16_t);
}

/// Scale of weights up to `largest` (>= 0). It is the smallest bf16 at or above largest / 127, so that no
/// quotient exceeds 127.
inline std::uint16_t int8_scale(float largest) {
    const auto bits = std::bit_cast<std::uint32_t>(largest / 127.0f);
    return static_cast<std::uint16_t>((bits + 0xffffu) >> 16);
}

/// Reads and writes single rows of a packed matrix.
struct MatrixAccess {
    static Matrix allocate(Packing packing, int n, int k);
    static void write_row(Matrix& matrix, int row, std::span<const float> values);
    static void write_int4_row(Matrix& matrix, int row, const Int4Row& values);
    static void copy_row(const Matrix& from, int from_row, Matrix& to, int to_row);
    /// Turns the memory of the first `n` rows into a matrix of n rows, whose contents must be written again.
    static void set_rows(Matrix& matrix, int n);
};

}  // namespace draftscope::kernels
