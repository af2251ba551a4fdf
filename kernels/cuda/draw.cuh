#pragma once

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/common.cuh"

/// Samples from the weights of a row's columns by a block of sample_threads. Sums of tiles stay in shared
/// memory; a scan of them finds the sample's tile, then one thread finds the column.
namespace draftscope::kernels::cuda {

inline constexpr int sample_threads = 1024;
inline constexpr int sample_warps = sample_threads / warp_size;
static_assert(sample_tile == warp_size);

struct SampleShared {
    float tiles[max_sample_columns / sample_tile];
    double totals[sample_warps];
    int chosen, token;
};

/// Weight of a column i, also after the last one: `of(i, read(i))`. `read` only loads, so that the loads of
/// several columns stay together.
template <typename Read, typename Of>
struct ColumnWeights {
    Read read;
    Of of;
    __device__ float operator()(int i) const { return of(i, read(i)); }
};
template <typename Read, typename Of>
ColumnWeights(Read, Of) -> ColumnWeights<Read, Of>;

/// A thread's contiguous run of tiles.
struct TileRun {
    int first = 0, end = 0;
    double local_sum = 0, before = 0, all = 0;  ///< weight of the run, of all previous runs, of the row
};

/// Adds up the weights of one tile. A lane has the value of its column.
template <typename Weight>
__device__ __forceinline__ void add_tile(int tile, SampleShared& shared, const Weight& weight, float value) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const float sum = warp_sum(weight.of(tile * sample_tile + lane, value));
    if (lane == 0) shared.tiles[tile] = sum;
}

/// Computes the runs of tiles from the tiles' weights; begins with a barrier. Every thread takes part.
__device__ inline TileRun add_runs(int columns, SampleShared& shared) {
    const int count = (columns + sample_tile - 1) / sample_tile;
    const int each = (count + sample_threads - 1) / sample_threads;
    TileRun run;
    run.first = min(static_cast<int>(threadIdx.x) * each, count);
    run.end = min(run.first + each, count);
    for (int t = run.first; t < run.end; ++t) run.local_sum += static_cast<double>(shared.tiles[t]);
    run.before = block_before<sample_warps>(run.local_sum, shared.totals, run.all);
    return run;
}

/// Adds up weight(column), which is 0 after the last column, in a fixed order. Every thread takes part;
/// begins with a barrier.
template <typename WeightOf>
__device__ TileRun add_tiles(int columns, SampleShared& shared, WeightOf weight) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int count = (columns + sample_tile - 1) / sample_tile;
    __syncthreads();
    if (threadIdx.x == 0) shared.chosen = -1;
    for_columns(
        warp, sample_warps, count, [&](int tile) { return weight.read(tile * sample_tile + lane); },
        [&](int tile, float value) { add_tile(tile, shared, weight, value); });
    __syncthreads();
    return add_runs(columns, shared);
}

/// Updates the sums after the weight of one column changed; only its tile is read again.
template <typename WeightOf>
__device__ TileRun add_changed(int columns, int column, SampleShared& shared, WeightOf weight) {
    __syncthreads();
    if (threadIdx.x == 0) shared.chosen = -1;
    const int tile = column / sample_tile;
    if (threadIdx.x < warp_size)
        add_tile(tile, shared, weight, weight.read(tile * sample_tile + static_cast<int>(threadIdx.x)));
    __syncthreads();
    return add_runs(columns, shared);
}

/// Finds the column where the running sum exceeds `target`. If rounding leaves a remainder, it is the last
/// column with any weight; without any weight, 0. Call it once after add_tiles(), with the same weights;
/// every thread gets the result.
template <typename WeightOf>
__device__ int sample_column(int columns, SampleShared& shared, const TileRun& run, double target,
                             WeightOf weight) {
    // The last thread with any weight whose part begins at or below the target.
    if (run.local_sum > 0 && run.before <= target) atomicMax(&shared.chosen, static_cast<int>(threadIdx.x));
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
        int token = tile * sample_tile;
        for (int i = tile * sample_tile; i < min((tile + 1) * sample_tile, columns); ++i) {
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
