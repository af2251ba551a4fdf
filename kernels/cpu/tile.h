#pragma once

/// Sizes of packed weights, without a single function or standard header: files compiled for one instruction
/// set include this, and an inline function they emitted could be picked by the linker for every machine.
namespace draftscope::kernels {

inline constexpr int lanes = 16;  ///< outputs in one block
inline constexpr int quant_block =
    128;  ///< inputs that share one scale of int8 weights, and their activations
inline constexpr int tile_inputs = 64;  ///< int8 inputs in one row of an AMX tile
inline constexpr int int8_padding = 4;  ///< int8 weights are padded to whole multiples of so many inputs
inline constexpr int int4_block = 32;   ///< inputs that share one int4 scale, and their activations; K is
                                        ///< padded to it
inline constexpr int int8_offset = 128;
inline constexpr int int4_offset = 8;  ///< of symmetric int4: a weight is scale * (q - 8)
/// Activations against int8 weights are two bytes, high * 2^bits + low with low in -2^(bits - 1) ..
/// 2^(bits - 1) - 1 and high in -127 .. 127, both halves summed apart; against int4 weights one byte.
inline constexpr int int8_low_bits = 7;
inline constexpr int rows_padding = 16;  ///< rows of activations one tile takes
/// What a tile load may read past the last weight of a matrix; times zero activations, so its value is free.
inline constexpr int tile_bytes = 1024;

}  // namespace draftscope::kernels
