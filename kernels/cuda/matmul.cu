#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

// y = x W^T for few rows of x, bound by reading W once. A block makes 16 * RowTiles outputs for 8 *
// TokenTiles rows of x: its eight warps take an eighth of k each, and their sums are added in the order of
// the warps. Tensor cores do the products (mma.m16n8k16: 16 outputs by 8 rows); whether 1 or 64 rows share a
// call, each value is summed in the same order, so that a row's result does not depend on the others.
//
// Fragments come straight from memory: lane (g = lane / 4, t = lane % 4) reads 16 bytes, values 8 t .. 8 t +
// 7 of a chunk of 32, of output g and g + 8 and of row g. Two mma steps eat a chunk; which k a step calls its
// i-th does not matter as long as both operands agree.
constexpr int warps = 8;
constexpr int threads = warps * warp_size;
constexpr int chunk = 32;
constexpr int tile_outputs = 16;
constexpr int tile_rows = 8;
constexpr int most_token_tiles = 8;
constexpr int narrow_columns = 1024;
constexpr int many_outputs = 8192;

struct Work {
    const Bf16* weights;
    int n;
    int stride;
    const Bf16* x;
    int rows;
    float* y;
    std::int64_t y_stride;
    const float* bias;
    const std::int32_t* chosen;
    const std::int32_t* chosen_count;
    bool accumulate;
};

/// Weights are read once: they should not push activations out of L1.
__device__ __forceinline__ uint4 load_weights(const Bf16* from) {
#if defined(DS_SIMT_HOST)
    return *reinterpret_cast<const uint4*>(from);
#else
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
#endif
}

/// Not through the read-only path: in a graph the kernel before has just written them.
__device__ __forceinline__ uint4 load_row(const Bf16* from) {
    return *reinterpret_cast<const uint4*>(from);
}

__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                    unsigned b0, unsigned b1) {
#if defined(DS_SIMT_HOST)
    mma_host(c, a0, a1, a2, a3, b0, b1);
#else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

template <int TokenTiles, int RowTiles, int Unroll>
struct Fragments {
    uint4 a[Unroll][RowTiles][2];
    float c[RowTiles][TokenTiles][4];
};

template <int TokenTiles, int RowTiles, int Unroll>
__device__ __forceinline__ void step(Fragments<TokenTiles, RowTiles, Unroll>& f,
                                     const Bf16* const (&outputs)[RowTiles][2],
                                     const Bf16* const (&rows)[TokenTiles], int first, int count) {
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
        if (u >= count) break;
#pragma unroll
        for (int r = 0; r < RowTiles; ++r) {
            f.a[u][r][0] = load_weights(outputs[r][0] + (first + u) * chunk);
            f.a[u][r][1] = load_weights(outputs[r][1] + (first + u) * chunk);
        }
    }
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
        if (u >= count) break;
#pragma unroll
        for (int t = 0; t < TokenTiles; ++t) {
            const uint4 b = load_row(rows[t] + (first + u) * chunk);
#pragma unroll
            for (int r = 0; r < RowTiles; ++r) {
                const uint4& low = f.a[u][r][0];
                const uint4& high = f.a[u][r][1];
                mma(f.c[r][t], low.x, high.x, low.y, high.y, b.x, b.y);
                mma(f.c[r][t], low.z, high.z, low.w, high.w, b.z, b.w);
            }
        }
    }
}

template <int TokenTiles, int RowTiles, int Unroll>
__global__ void __launch_bounds__(threads) matmul_kernel(const Work work) {
    constexpr int width = TokenTiles * tile_rows;
    __shared__ float sums[warps][tile_outputs][width];
    const int outputs = work.chosen == nullptr ? work.n : *work.chosen_count;
    const int base = static_cast<int>(blockIdx.x) * tile_outputs * RowTiles;
    if (base >= outputs) return;  // all threads of the block alike
    const int first_row = static_cast<int>(blockIdx.y) * width;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int g = lane / 4, t = lane % 4;

    // Outputs and rows past the end read the last ones again; nothing of them is stored.
    const Bf16* from[RowTiles][2];
#pragma unroll
    for (int r = 0; r < RowTiles; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int output = min(base + r * tile_outputs + h * 8 + g, outputs - 1);
            if (work.chosen != nullptr) output = work.chosen[output];
            from[r][h] = work.weights + static_cast<std::int64_t>(output) * work.stride + t * 8;
        }
    const Bf16* rows[TokenTiles];
#pragma unroll
    for (int i = 0; i < TokenTiles; ++i) {
        const int row = min(first_row + i * tile_rows + g, work.rows - 1);
        rows[i] = work.x + static_cast<std::int64_t>(row) * work.stride + t * 8;
    }

    Fragments<TokenTiles, RowTiles, Unroll> f;
#pragma unroll
    for (int r = 0; r < RowTiles; ++r)
#pragma unroll
        for (int i = 0; i < TokenTiles; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) f.c[r][i][e] = 0.0f;
    const int chunks = work.stride / chunk;
    const int end = chunks * (warp + 1) / warps;
    int at = chunks * warp / warps;
    for (; at + Unroll <= end; at += Unroll) step(f, from, rows, at, Unroll);
    if (at < end) step(f, from, rows, at, end - at);

#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
        if (r > 0) __syncthreads();
#pragma unroll
        for (int i = 0; i < TokenTiles; ++i) {
            sums[warp][g][i * tile_rows + 2 * t] = f.c[r][i][0];
            sums[warp][g][i * tile_rows + 2 * t + 1] = f.c[r][i][1];
            sums[warp][g + 8][i * tile_rows + 2 * t] = f.c[r][i][2];
            sums[warp][g + 8][i * tile_rows + 2 * t + 1] = f.c[r][i][3];
        }
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

template <int TokenTiles, int RowTiles, int Unroll>
void launch(const Work& work, int outputs, cudaStream_t stream) {
    constexpr int per_block = tile_outputs * RowTiles;
    const dim3 grid(
        static_cast<unsigned>((outputs + per_block - 1) / per_block),
        static_cast<unsigned>((work.rows + TokenTiles * tile_rows - 1) / (TokenTiles * tile_rows)));
    DS_LAUNCH((matmul_kernel<TokenTiles, RowTiles, Unroll>), grid, threads, 0, stream, work);
}

}  // namespace

void launch_matmul(const MatmulOp& op, cudaStream_t stream) {
    const int outputs = op.chosen == nullptr ? op.weights.n : op.most_chosen;
    if (op.rows == 0 || outputs == 0) return;
    const Work work{
        op.weights.data, op.weights.n, op.weights.stride, op.x,         op.rows, op.y, op.y_stride,
        op.bias,         op.chosen,    op.chosen_count,   op.accumulate};
    const int tiles = (op.rows + tile_rows - 1) / tile_rows;
    static_assert(most_token_tiles == 8);
    // Rows of few chunks leave a warp little to load: more outputs in a block make up for it.
    const bool narrow = op.weights.stride <= narrow_columns && outputs >= many_outputs;
    if (tiles <= 1)
        return narrow ? launch<1, 4, 2>(work, outputs, stream) : launch<1, 1, 4>(work, outputs, stream);
    if (tiles <= 2)
        return narrow ? launch<2, 2, 2>(work, outputs, stream) : launch<2, 1, 4>(work, outputs, stream);
    if (tiles <= 4) return launch<4, 2, 2>(work, outputs, stream);
    launch<8, 4, 1>(work, outputs, stream);
}

}  // namespace draftscope::kernels::cuda
