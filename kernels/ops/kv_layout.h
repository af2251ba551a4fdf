#pragma once

/// A separate header for one constant, because files compiled for one instruction set include it.
namespace draftscope::kernels {

/// Slots whose keys are interleaved by dimension.
inline constexpr int key_lanes = 16;

}  // namespace draftscope::kernels
