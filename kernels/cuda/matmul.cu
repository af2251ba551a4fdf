#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.cuh"

namespace draftscope::kernels::cuda {
namespace {

// y = x W^T for few rows of x, limited by reading W once (see mma.cuh).
constexpr int max_token_tiles = 8;
constexpr int narrow_columns = 1024;
constexpr int many_outputs = 8192;
/// Up to this many outputs have a block per multiprocessor at most, so a thread loads all weights of a row of
/// 4,096 values at once.
constexpr int few_outputs = 2048;
/// Above this many rows, tensor cores limit the speed rather than memory (matmul_wide.cu, the same bits). Our
/// default, not measured.
constexpr int few_rows = 64;

struct Work {
    const half_t* weights;
    int n;
    int stride;
    const half_t* x;
    int rows;
    float* y;
    std::int64_t y_stride;
    const float* bias;
    const std::int32_t* chosen;
    const std::int32_t* chosen_count;
    bool accumulate;
};

/// Blocks per multiprocessor that hide the latency of memory, where the compiler would settle for fewer; 0 =
/// as many as it chooses.
constexpr int min_blocks(int token_tiles) {
    return token_tiles == 4 ? 2 : 0;
}

template <Float16Kind H, int TokenTiles, int RowTiles, int Unroll>
__global__ void __launch_bounds__(threads, min_blocks(TokenTiles)) matmul_kernel(const Work work) {
    constexpr int width = TokenTiles * tile_rows;
    DS_SHARED(float[warps][tile_outputs][width], sums);
    if (work.chosen != nullptr) wait_for_previous();  // which may have made the list
    const int outputs = work.chosen == nullptr ? work.n : *work.chosen_count;
    const int base = static_cast<int>(blockIdx.x) * tile_outputs * RowTiles;
    if (base >= outputs) return;  // uniform across the block
    const int first_row = static_cast<int>(blockIdx.y) * width;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int g = lane / 4, t = lane % 4;

    // Outputs and rows past the end read the last ones again; their results are not stored.
    const half_t* from[RowTiles][2];
#pragma unroll
    for (int r = 0; r < RowTiles; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int output = min(base + r * tile_outputs + h * 8 + g, outputs - 1);
            if (work.chosen != nullptr) output = work.chosen[output];
            from[r][h] = work.weights + static_cast<std::int64_t>(output) * work.stride + t * 8;
        }
    const half_t* rows[TokenTiles];
#pragma unroll
    for (int i = 0; i < TokenTiles; ++i) {
        const int row = min(first_row + i * tile_rows + g, work.rows - 1);
        rows[i] = work.x + static_cast<std::int64_t>(row) * work.stride + t * 8;
    }

    Fragments<TokenTiles, RowTiles, Unroll> f;
    tile_product<H>(f, from, rows, work.stride, [&] {
        if (work.chosen == nullptr) wait_for_previous();
    });

#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
        if (r > 0) __syncthreads();
        share_part(f, r, sums[warp]);
        __syncthreads();
        for (int e = static_cast<int>(threadIdx.x); e < tile_outputs * width; e += threads) {
            const int column = base + r * tile_outputs + e % tile_outputs;
            const int row = first_row + e / tile_outputs;
            if (column >= outputs || row >= work.rows) continue;
            float sum = sums[0][e % tile_outputs][e / tile_outputs];
#pragma unroll
            for (int w = 1; w < warps; ++w) sum += sums[w][e % tile_outputs][e / tile_outputs];
            if (work.bias != nullptr) sum += work.bias[work.chosen == nullptr ? column : work.chosen[column]];
            float* to = work.y + row * work.y_stride + column;
            *to = work.accumulate ? *to + sum : sum;
        }
    }
}

template <Float16Kind H, int TokenTiles, int RowTiles, int Unroll>
void launch_tiles(const Work& work, int outputs, LaunchStream stream) {
    constexpr int per_block = tile_outputs * RowTiles;
    const dim3 grid(
        static_cast<unsigned>((outputs + per_block - 1) / per_block),
        static_cast<unsigned>((work.rows + TokenTiles * tile_rows - 1) / (TokenTiles * tile_rows)));
    DS_LAUNCH_DEPENDENT((matmul_kernel<H, TokenTiles, RowTiles, Unroll>), grid, threads, 0, stream, work);
}

}  // namespace

void launch(const MatmulOp& op, Float16Kind dtype, LaunchStream stream) {
    const int outputs = op.chosen == nullptr ? op.weights.n : op.max_chosen;
    if (op.rows == 0 || outputs == 0) return;
    if (op.rows > few_rows && op.chosen == nullptr) return launch_wide_matmul(op, dtype, stream);
    const Work work{op.weights.data, op.weights.n, op.weights.stride, op.x.halves,     op.rows,      op.y,
                    op.y_stride,     op.bias,      op.chosen,         op.chosen_count, op.accumulate};
    const int tiles = (op.rows + tile_rows - 1) / tile_rows;
    static_assert(max_token_tiles == 8);
    // Rows of few chunks give a warp little to load; more outputs per block compensate.
    const bool narrow = op.weights.stride <= narrow_columns && outputs >= many_outputs;
    with_dtype(dtype, [&](auto kind) {
        constexpr Float16Kind H = decltype(kind)::value;
        if (tiles <= 1)
            return narrow                   ? launch_tiles<H, 1, 4, 2>(work, outputs, stream)
                   : outputs <= few_outputs ? launch_tiles<H, 1, 1, 16>(work, outputs, stream)
                                            : launch_tiles<H, 1, 1, 4>(work, outputs, stream);
        if (tiles <= 2)
            return narrow ? launch_tiles<H, 2, 2, 2>(work, outputs, stream)
                          : launch_tiles<H, 2, 1, 4>(work, outputs, stream);
        if (tiles <= 4) return launch_tiles<H, 4, 2, 2>(work, outputs, stream);
        launch_tiles<H, 8, 4, 1>(work, outputs, stream);
    });
}

}  // namespace draftscope::kernels::cuda
