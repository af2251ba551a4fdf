#pragma once

#include "kernels/cuda/simt.h"

namespace draftscope::kernels::cuda {

/// Columns of a row that a thread reads before it uses the first one. Its loads then wait for memory
/// together; otherwise each turn of a loop that stores, or adds over a warp, waits.
inline constexpr int columns_held = 8;

/// Calls use(i, read(i)) for i = first, first + step, ... below `count`, in order.
template <typename Read, typename Use>
__device__ __forceinline__ void for_columns(int first, int step, int count, Read read, Use use) {
    for (int at = first; at < count; at += columns_held * step) {
        decltype(read(0)) values[columns_held];
#pragma unroll
        for (int i = 0; i < columns_held; ++i)
            values[i] = at + i * step < count ? read(at + i * step) : decltype(read(0)){};
#pragma unroll
        for (int i = 0; i < columns_held; ++i)
            if (at + i * step < count) use(at + i * step, values[i]);
    }
}

}  // namespace draftscope::kernels::cuda
