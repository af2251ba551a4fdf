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

/// A kernel that may start early sees constants and its parameters, and all memory once every thread waits.
TEST(SimtHost, MemoryIsHiddenUntilAKernelWaits) {
    bool all = true;
    const void* constant = nullptr;
    const simt::MemoryGuard guard{[&] { all = false; },
                                  [&](const void* at) {
                                      if (at == nullptr)
                                          all = true;
                                      else
                                          constant = at;
                                  }};
    int hidden_before = 0, shown_after = 0;
    const int weight = 7;
    const auto kernel = [&] {
        hidden_before += all ? 0 : 1;
        simt::show(&weight);
        simt::wait_for_previous();
        shown_after += all ? 1 : 0;
    };
    simt::run(2, 64, 0, kernel, &guard);
    EXPECT_EQ(hidden_before, 64);  // of the first block
    EXPECT_EQ(shown_after, 128);
    EXPECT_EQ(constant, &weight);
}

TEST(SimtHostDeathTest, EveryThreadOfAnEarlyKernelWaits) {
    const simt::MemoryGuard guard;
    const auto kernel = [] {
        if (threadIdx.x != 5) simt::wait_for_previous();
    };
    EXPECT_DEATH(simt::run(1, 32, 0, kernel, &guard), "a thread of it ends without wait_for_previous");
}

}  // namespace
}  // namespace draftscope::kernels::cuda
