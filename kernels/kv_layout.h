#pragma once

/// A constant alone: files compiled for one instruction set read this too.
namespace draftscope::kernels {

/// Slots whose keys lie side by side, dimension by dimension.
inline constexpr int key_lanes = 16;

}  // namespace draftscope::kernels
