#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// A row of K weights in four bits.
struct Int4Row {
    std::span<std::uint8_t> q;          ///< [K], 0 .. 15
    std::span<std::uint16_t> scales;    ///< [K / 32 rounded up], f16 bits
    std::span<std::uint16_t> minimums;  ///< as scales
};
/// Fills `out` with a row's stored values. Returns false if the row is not stored in four bits.
using Int4Source = FunctionRef<bool(int row, const Int4Row& out)>;

/// Packs a matrix in int4. Rows come from `stored` if stored in four bits, else they are quantised from
/// `source`. Minimums are omitted if every row's are -8 times the scales, as in Q4_0. Finding out may read
/// rows twice.
Matrix pack_int4(Exec& exec, int n, int k, RowSource source, Int4Source stored);

}  // namespace draftscope::kernels
