#include "kernels/cuda/simt.h"

#include <gtest/gtest.h>

namespace draftscope::kernels::cuda {
namespace {

/// Shared memory that a block has not written is a pattern, also if an earlier block wrote it.
TEST(SimtHost, SharedMemoryStartsUnset) {
    unsigned seen[3] = {};
    const auto kernel = [](unsigned* out) {
        DS_SHARED(unsigned[2], words);
        if (threadIdx.x == 0) {
            out[blockIdx.x] = words[1];
            words[0] = 7;
        }
        __syncthreads();
        if (threadIdx.x == 1) words[1] = words[0];
        __syncthreads();
        if (threadIdx.x == 2 && words[1] != 7) out[blockIdx.x] = 0;
    };
    simt::run(3, 32, 0, [&] { kernel(seen); });
    for (const unsigned word : seen) EXPECT_EQ(word, 0xeeeeeeeeu);
}

/// Warp-wide reductions see the value of every lane.
TEST(SimtHost, ReducesOverAWarp) {
    unsigned maxima[64] = {}, minima[64] = {};
    const auto kernel = [](unsigned* top, unsigned* bottom) {
        const unsigned value = (threadIdx.x * 13) % 64 + 100;
        top[threadIdx.x] = __reduce_max_sync(0xffffffffu, value);
        bottom[threadIdx.x] = __reduce_min_sync(0xffffffffu, value);
    };
    simt::run(1, 64, 0, [&] { kernel(maxima, minima); });
    for (unsigned warp = 0; warp < 2; ++warp) {
        unsigned largest = 0, smallest = 1000;
        for (unsigned t = warp * 32; t < warp * 32 + 32; ++t) {
            largest = std::max(largest, t * 13 % 64 + 100);
            smallest = std::min(smallest, t * 13 % 64 + 100);
        }
        for (unsigned t = warp * 32; t < warp * 32 + 32; ++t) {
            EXPECT_EQ(maxima[t], largest);
            EXPECT_EQ(minima[t], smallest);
        }
    }
}

}  // namespace
}  // namespace draftscope::kernels::cuda
