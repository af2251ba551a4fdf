#pragma once

#include <cstdint>

/// 16 rows of 4-byte groups to the block order of packed weights (kernels/cpu/layout.h). Plain pointers only,
/// as in row_kernels.h.
namespace draftscope::kernels {

/// out[g * 16 + r] = rows[r][g] for g < groups. Rows and `out` are 64-byte aligned, and rows may be read up
/// to the next multiple of 16 groups (whatever lies there is not written). Where `ahead` is not null, as many
/// groups of its 16 rows are fetched into the second cache meanwhile, so that memory is never idle.
using Interleave16 = void (*)(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                              const std::uint32_t* const* ahead);

void interleave16_portable(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                           const std::uint32_t* const* ahead);
void interleave16_avx512(const std::uint32_t* const* rows, int groups, std::uint32_t* out,
                         const std::uint32_t* const* ahead);

}  // namespace draftscope::kernels
