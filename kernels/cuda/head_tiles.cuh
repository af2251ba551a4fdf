#pragma once

#include "kernels/cuda/mma.cuh"

/// Logits of a chunk of a head in shared memory, for kernels that keep only the best of them.
namespace draftscope::kernels::cuda {

inline constexpr int max_head_tiles = 4;  ///< tiles of eight rows that fit in 48 KB of shared memory
inline constexpr int head_row_tiles = 2;
inline constexpr int head_loads = 4;  ///< row tiles times chunks of k that a warp loads at once

/// Calls `run` with the 16-bit format and the number of token tiles for this many rows as types.
template <typename Run>
void with_head_tiles(Float16Kind dtype, int rows, Run run) {
    static_assert(max_head_tiles == 4);
    const int tiles = (rows + tile_rows - 1) / tile_rows;
    with_dtype(dtype, [&](auto kind) {
        if (tiles <= 1)
            run(kind, std::integral_constant<int, 1>());
        else if (tiles <= 2)
            run(kind, std::integral_constant<int, 2>());
        else
            run(kind, std::integral_constant<int, 4>());
    });
}

/// With few rows, all row tiles have sums of their own.
/// Turns alternate between two sets of them, so that a turn needs one barrier.
template <int TokenTiles>
struct HeadTiles {
    static constexpr int width = TokenTiles * tile_rows, buffers = TokenTiles == 1 ? 2 * head_row_tiles : 1;
    float sums[buffers][warps][tile_outputs][width];
    float logits[width][matmul_topk_chunk];
};

/// Computes outputs output_at(0) .. output_at(count - 1), count <= matmul_topk_chunk, for the rows from
/// first_row on. The values equal MatmulOp's bit for bit and are valid after the next barrier. Rows past the
/// last repeat it. Waits for the previous kernel before it reads `x`.
template <Float16Kind H, int TokenTiles, int RowTiles = head_row_tiles, typename OutputAt>
__device__ void make_logits(const DeviceMatrix& weights, const half_t* x, int rows, int first_row,
                            const float* bias, int count, OutputAt output_at, HeadTiles<TokenTiles>& shared) {
    constexpr int width = HeadTiles<TokenTiles>::width, row_tiles = RowTiles;
    constexpr int at_once = tile_outputs * row_tiles;
    static_assert(matmul_topk_chunk % at_once == 0);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int g = lane / 4, t = lane % 4;
    const half_t* from_rows[TokenTiles];
#pragma unroll
    for (int i = 0; i < TokenTiles; ++i) {
        const int row = min(first_row + i * tile_rows + g, rows - 1);
        from_rows[i] = x + static_cast<std::int64_t>(row) * weights.stride + t * 8;
    }
    for (int base = 0; base < count; base += at_once) {
        const half_t* from[row_tiles][2];
#pragma unroll
        for (int r = 0; r < row_tiles; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int output = output_at(min(base + r * tile_outputs + h * 8 + g, count - 1));
                from[r][h] = weights.data + static_cast<std::int64_t>(output) * weights.stride + t * 8;
            }
        Fragments<TokenTiles, row_tiles, head_loads / row_tiles> f;
        tile_product<H>(f, from, from_rows, weights.stride, [&] {
            if (base == 0) wait_for_previous();
        });
        const auto add_parts = [&](const float(&sums)[warps][tile_outputs][width], int r, int e) {
            const int o = e % tile_outputs, row = e / tile_outputs;
            const int at = base + r * tile_outputs + o;
            float sum = sums[0][o][row];
#pragma unroll
            for (int w = 1; w < warps; ++w) sum += sums[w][o][row];
            if (bias != nullptr && at < count) sum += bias[output_at(at)];
            shared.logits[row][at] = sum;
        };
        constexpr int each = tile_outputs * width;
        if constexpr (HeadTiles<TokenTiles>::buffers > 1) {
            auto* sums = shared.sums + base / at_once % 2 * row_tiles;
#pragma unroll
            for (int r = 0; r < row_tiles; ++r) share_part(f, r, sums[r][warp]);
            __syncthreads();
            for (int e = static_cast<int>(threadIdx.x); e < row_tiles * each; e += threads)
                add_parts(sums[e / each], e / each, e % each);
        } else {
#pragma unroll
            for (int r = 0; r < row_tiles; ++r) {
                __syncthreads();  // readers of the previous sums are done
                share_part(f, r, shared.sums[0][warp]);
                __syncthreads();
                for (int e = static_cast<int>(threadIdx.x); e < each; e += threads)
                    add_parts(shared.sums[0], r, e);
            }
        }
    }
}

}  // namespace draftscope::kernels::cuda
