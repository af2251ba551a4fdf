#pragma once

/// Sizes of packed weights, without a single function or standard header: files compiled for one instruction
/// set include this, and an inline function they emitted could be picked by the linker for every machine.
namespace draftscope::kernels {

inline constexpr int lanes = 16;        ///< outputs in one block
inline constexpr int quant_block = 32;  ///< inputs that share one int8 scale
inline constexpr int int8_offset = 128;

}  // namespace draftscope::kernels
