#pragma once

#include "kernels/exec.h"

namespace draftscope::kernels {

/// The level above avx512_bf16: tiles of int8 and bf16 (Intel AMX). bf16 sums of this level differ from those
/// of the level below in their last bits, int8 sums do not.
inline constexpr Isa isa_amx = static_cast<Isa>(static_cast<int>(Isa::avx512_bf16) + 1);

}  // namespace draftscope::kernels
