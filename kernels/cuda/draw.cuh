#pragma once

#include "kernels/cuda/common.cuh"

/// Samples from the weights of a row's columns by a block of draw_threads. Sums of tiles stay in shared
/// memory; a scan of them finds the sample's tile, then one thread finds the column.
namespace draftscope::kernels::cuda {

inline constexpr int draw_threads = 1024;
inline constexpr int draw_warps = draw_threads / warp_size;
static_assert(draw_tile == warp_size);

struct DrawShared {
    float tiles[most_draw_columns / draw_tile];
    double totals[draw_warps];
    int chosen, token;
};

/// A thread's contiguous run of tiles.
struct TileRun {
    int first = 0, end = 0;
    double mine = 0, before = 0, all = 0;  ///< weight of the run, of all previous runs, of the row
};

/// Weight of one tile, computed by a warp.
template <typename WeightOf>
__device__ __forceinline__ void add_tile(int tile, DrawShared& shared, WeightOf weight) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const float sum = warp_sum(weight(tile * draw_tile + lane));
    if (lane == 0) shared.tiles[tile] = sum;
}

/// Computes the runs of tiles from the tiles' weights; begins with a barrier. Every thread takes part.
__device__ inline TileRun add_runs(int columns, DrawShared& shared) {
    const int count = (columns + draw_tile - 1) / draw_tile;
    const int each = (count + draw_threads - 1) / draw_threads;
    TileRun run;
    run.first = min(static_cast<int>(threadIdx.x) * each, count);
    run.end = min(run.first + each, count);
    for (int t = run.first; t < run.end; ++t) run.mine += static_cast<double>(shared.tiles[t]);
    run.before = block_before<draw_warps>(run.mine, shared.totals, run.all);
    return run;
}

/// Adds up weight(column), which is 0 after the last column, in a fixed order. Every thread takes part;
/// begins with a barrier.
template <typename WeightOf>
__device__ TileRun add_tiles(int columns, DrawShared& shared, WeightOf weight) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int count = (columns + draw_tile - 1) / draw_tile;
    __syncthreads();
    if (threadIdx.x == 0) shared.chosen = -1;
    for (int t = warp; t < count; t += draw_warps) add_tile(t, shared, weight);
    __syncthreads();
    return add_runs(columns, shared);
}

/// Updates the sums after the weight of one column changed; only its tile is read again.
template <typename WeightOf>
__device__ TileRun add_changed(int columns, int column, DrawShared& shared, WeightOf weight) {
    __syncthreads();
    if (threadIdx.x == 0) shared.chosen = -1;
    if (threadIdx.x < warp_size) add_tile(column / draw_tile, shared, weight);
    __syncthreads();
    return add_runs(columns, shared);
}

/// Finds the column where the running sum exceeds `target`. If rounding leaves a remainder, it is the last
/// column with any weight; without any weight, 0. Call it once after add_tiles(), with the same weights;
/// every thread gets the result.
template <typename WeightOf>
__device__ int draw_column(int columns, DrawShared& shared, const TileRun& run, double target,
                           WeightOf weight) {
    // The last thread with any weight whose part begins at or below the target.
    if (run.mine > 0 && run.before <= target) atomicMax(&shared.chosen, static_cast<int>(threadIdx.x));
    __syncthreads();
    if (shared.chosen < 0) return 0;  // uniform across the block
    if (static_cast<int>(threadIdx.x) == shared.chosen) {
        int tile = run.first;
        double start = run.before, before = run.before;
        for (int t = run.first; t < run.end; ++t) {
            if (shared.tiles[t] > 0 && before <= target) {
                tile = t;
                start = before;
            }
            before += static_cast<double>(shared.tiles[t]);
        }
        before = start;
        int token = tile * draw_tile;
        for (int i = tile * draw_tile; i < min((tile + 1) * draw_tile, columns); ++i) {
            const float w = weight(i);
            if (!(w > 0)) continue;
            if (before <= target) token = i;
            before += static_cast<double>(w);
        }
        shared.token = token;
    }
    __syncthreads();
    return shared.token;
}

}  // namespace draftscope::kernels::cuda
