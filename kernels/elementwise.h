#pragma once

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// y = silu(gate) * up, all [M, F]; y may alias gate or up.
void silu_mul(Exec& exec, Rows<const float> gate, Rows<const float> up, Rows<float> y);
/// Rounds each value to the nearest bf16 (ties to even), in place. Drafter features are bf16, in live
/// decoding and in recordings.
void cast_to_bf16(Exec& exec, Rows<float> x);

/// Rounds each value to the 16-bit format of the Exec's device (Backend::halves); bf16 without a device.
void cast_to_dtype(Exec& exec, Rows<float> x);

}  // namespace draftscope::kernels
