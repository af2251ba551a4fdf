#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = 256;

/// A block fills a row, each thread eight neighbouring values at a time.
template <Float16Kind H>
__global__ void __launch_bounds__(threads)
    fill_random_kernel(half_t* to, int k, int stride, const RandomValues values) {
    const int row = static_cast<int>(blockIdx.x);
    const std::uint32_t start = values.start_of(row);
    auto* out = reinterpret_cast<uint4*>(to + static_cast<std::int64_t>(row) * stride);
    for (int piece = static_cast<int>(threadIdx.x); piece < stride / 8; piece += threads) {
        unsigned pairs[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int column = piece * 8 + i;
            if (column < k)
                pairs[i / 2] |= static_cast<unsigned>(to_half<H>(values.at(start, column))) << 16 * (i % 2);
        }
        out[piece] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

}  // namespace

void launch_fill_random(half_t* to, int rows, int k, const RandomValues& values, Float16Kind dtype,
                        LaunchStream stream) {
    if (rows == 0) return;
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH((fill_random_kernel<decltype(kind)::value>), static_cast<unsigned>(rows), threads, 0,
                  stream, to, k, padded_columns(k), values);
    });
}

}  // namespace draftscope::kernels::cuda
