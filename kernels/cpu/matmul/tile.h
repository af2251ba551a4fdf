#pragma once

/// Constants of packed weights, without functions or standard headers. Files compiled for one instruction set
/// include this header; the linker could pick an inline function of theirs for every machine.
namespace draftscope::kernels {

inline constexpr int lanes = 16;         ///< outputs per block
inline constexpr int quant_block = 128;  ///< inputs that share one scale of int8 weights or activations
inline constexpr int tile_inputs = 64;   ///< int8 inputs in one row of an AMX tile
inline constexpr int int8_padding = 4;   ///< int8 weights are padded to a multiple of this many inputs
inline constexpr int int4_block = 32;    ///< inputs that share one int4 scale, and their activations; K is
                                         ///< padded to it
inline constexpr int int8_offset = 128;
inline constexpr int int4_offset = 8;  ///< symmetric int4: a weight is scale * (q - 8)
/// Activations for int8 weights are two bytes, high * 2^bits + low, summed separately. low is in -2^(bits -
/// 1) .. 2^(bits - 1) - 1, high in -127 .. 127. For int4 weights they are one byte.
inline constexpr int int8_low_bits = 7;
inline constexpr int rows_padding = 16;  ///< rows of activations per tile
/// Bytes that a tile load may read past the last weight. They are multiplied by zero activations.
inline constexpr int tile_bytes = 1024;

}  // namespace draftscope::kernels
