#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Bits of the nearest f16 (ties to even), held at the largest.
std::uint16_t f16_bits(float value);

/// One row of K weights that is stored in four bits already.
struct Int4Row {
    std::span<std::uint8_t> q;          ///< [K], 0 .. 15
    std::span<std::uint16_t> scales;    ///< [K / 32 rounded up], f16 bits
    std::span<std::uint16_t> minimums;  ///< the same
};
/// Fills `out` from such a row, or says false where the row is stored in another way.
using Int4Source = FunctionRef<bool(int row, const Int4Row& out)>;

/// Matrix::pack() in int4, from `stored` where a row is stored in four bits, else quantised from `source`.
/// Without minimums where every row's are -8 times the scales, as of a tensor in Q4_0; rows may be asked for
/// twice, to find out.
Matrix pack_int4(Exec& exec, int n, int k, RowSource source, Int4Source stored);

}  // namespace draftscope::kernels
