#pragma once

#include "base/spans.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// y = silu(gate) * up, all [M, F]; y may alias gate or up.
void silu_mul(ThreadPool& pool, Rows<const float> gate, Rows<const float> up, Rows<float> y);
/// Rounds each value to the nearest bf16 (ties to even), in place. Drafter features are bf16, in live
/// decoding and in recordings.
void cast_to_bf16(ThreadPool& pool, Rows<float> x);

}  // namespace draftscope::kernels
