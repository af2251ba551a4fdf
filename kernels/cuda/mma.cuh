#pragma once

#include "kernels/cuda/common.cuh"

/// Tensor core products of few rows. Plain products and heads share them, since their values must have the
/// same bits.
namespace draftscope::kernels::cuda {

// A block computes 16 * RowTiles outputs for 8 * TokenTiles rows of x. Each of its eight warps takes an
// eighth of k; their sums are added in the order of the warps. The products are mma.m16n8k16 (16 outputs by 8
// rows). Each value is summed in the same order for 1 or 64 rows, so that a row's result does not depend on
// the others. Fragments are loaded straight from memory. Lane (g = lane / 4, t = lane % 4) reads 16 bytes,
// values 8 t .. 8 t + 7 of a chunk of 32, of outputs g and g + 8 and of row g. Two mma steps consume a chunk.
// The assignment of k to fragment elements may be any, if both operands agree.
inline constexpr int warps = 8;
inline constexpr int threads = warps * warp_size;
inline constexpr int chunk = 32;
inline constexpr int tile_outputs = 16;
inline constexpr int tile_rows = 8;

/// Weights are read once and should not evict activations from L1. Not through the read-only path (`.nc`),
/// whose loads ptxas moves behind griddepcontrol.wait.
__device__ __forceinline__ uint4 load_weights(const half_t* from) {
#if defined(DS_SIMT_HOST)
    simt::show(from);
    return *reinterpret_cast<const uint4*>(from);
#else
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
#endif
}

/// Not through the read-only path: in a graph, the previous kernel may just have written them.
__device__ __forceinline__ uint4 load_row(const half_t* from) {
    return *reinterpret_cast<const uint4*>(from);
}

template <Float16Kind H>
__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                    unsigned b0, unsigned b1) {
#if defined(DS_SIMT_HOST)
    mma_host(c, a0, a1, a2, a3, b0, b1, [](std::uint16_t half) { return from_half<H>(half); });
#else
    if constexpr (H == Float16Kind::f16) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
        return;
    }
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
__device__ __forceinline__ void load_step(Fragments<TokenTiles, RowTiles, Unroll>& f,
                                          const half_t* const (&outputs)[RowTiles][2], int first, int count) {
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
        if (u >= count) break;
#pragma unroll
        for (int r = 0; r < RowTiles; ++r) {
            f.a[u][r][0] = load_weights(outputs[r][0] + (first + u) * chunk);
            f.a[u][r][1] = load_weights(outputs[r][1] + (first + u) * chunk);
        }
    }
}
template <Float16Kind H, int TokenTiles, int RowTiles, int Unroll>
__device__ __forceinline__ void add_step(Fragments<TokenTiles, RowTiles, Unroll>& f,
                                         const half_t* const (&rows)[TokenTiles], int first, int count) {
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
                mma<H>(f.c[r][t], low.x, high.x, low.y, high.y, b.x, b.y);
                mma<H>(f.c[r][t], low.z, high.z, low.w, high.w, b.z, b.w);
            }
        }
    }
}

/// Computes this warp's eighth of the products of a tile. Each lane passes the addresses of its two outputs
/// per row tile and of its row per token tile, offset by its eight values. Calls `before_rows` once, after
/// the first weights were asked for and before rows are read.
template <Float16Kind H, int TokenTiles, int RowTiles, int Unroll, typename BeforeRows>
__device__ __forceinline__ void tile_product(Fragments<TokenTiles, RowTiles, Unroll>& f,
                                             const half_t* const (&from)[RowTiles][2],
                                             const half_t* const (&rows)[TokenTiles], int stride,
                                             BeforeRows before_rows) {
#pragma unroll
    for (int r = 0; r < RowTiles; ++r)
#pragma unroll
        for (int i = 0; i < TokenTiles; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) f.c[r][i][e] = 0.0f;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int chunks = stride / chunk;
    const int end = chunks * (warp + 1) / warps;
    int at = chunks * warp / warps;
    if (at + Unroll <= end) {
        load_step(f, from, at, Unroll);
        before_rows();
        add_step<H>(f, rows, at, Unroll);
        at += Unroll;
    } else {
        before_rows();
    }
    for (; at + Unroll <= end; at += Unroll) {
        load_step(f, from, at, Unroll);
        add_step<H>(f, rows, at, Unroll);
    }
    if (at >= end) return;
    load_step(f, from, at, end - at);
    add_step<H>(f, rows, at, end - at);
}

/// Writes this warp's part of row tile `r` to shared memory.
template <int TokenTiles, int RowTiles, int Unroll>
__device__ __forceinline__ void share_part(const Fragments<TokenTiles, RowTiles, Unroll>& f, int r,
                                           float (&part)[tile_outputs][TokenTiles * tile_rows]) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < TokenTiles; ++i) {
        part[g][i * tile_rows + 2 * t] = f.c[r][i][0];
        part[g][i * tile_rows + 2 * t + 1] = f.c[r][i][1];
        part[g + 8][i * tile_rows + 2 * t] = f.c[r][i][2];
        part[g + 8][i * tile_rows + 2 * t + 1] = f.c[r][i][3];
    }
}

}  // namespace draftscope::kernels::cuda
