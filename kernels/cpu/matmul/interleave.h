#pragma once

#include <cstdint>

/// Converts 16 rows of 4-byte groups to the block order of packed weights (kernels/cpu/matmul/layout.h).
/// Plain pointers only, as in row_kernels.h.
namespace draftscope::kernels {

/// Interleaves 16 rows: out[g * 16 + r] = rows[r][g] for g < groups. Rows and `out` are 64-byte aligned. Rows
/// are read up to the next multiple of 16 groups; the excess is not written. If `ahead` is not null, the same
/// number of groups of its 16 rows is prefetched into L2, so that memory reads never pause.
using Interleave16 = void (*)(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                              const std::uint32_t* const* ahead);

void interleave16_portable(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                           const std::uint32_t* const* ahead);
void interleave16_avx512(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                         const std::uint32_t* const* ahead);

}  // namespace draftscope::kernels
