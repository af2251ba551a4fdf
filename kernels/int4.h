#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// The precision below int8: one f16 scale and minimum per row and 32 columns, w = scale * q + minimum with q
/// in 0 .. 15, which holds GGUF's Q4_0 and Q4_1 exactly. Activations are quantised as for int8. Named "int4".
inline constexpr Precision precision_int4 = static_cast<Precision>(static_cast<int>(Precision::int8) + 1);

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
Matrix pack_int4(Exec& exec, int n, int k, RowSource source, Int4Source stored);

}  // namespace draftscope::kernels
