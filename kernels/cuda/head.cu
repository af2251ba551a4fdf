#include <cmath>

#include "kernels/cuda/head_tiles.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/top.cuh"

// A head's product fused with its selection. A block computes the logits of a chunk of outputs tile by tile
// and keeps them in shared memory. It writes the k best of each row, their maximum and their sum. A second
// kernel merges those, one block per row. The logits are never written.
namespace draftscope::kernels::cuda {
namespace {

struct Scratch {
    Scratch(const MatmulTopKOp& op)
        : outputs(matmul_topk_outputs(op.support)),
          chunks((op.support + outputs - 1) / outputs),
          keys(static_cast<std::uint64_t*>(op.scratch)),
          sums(reinterpret_cast<float*>(keys + static_cast<std::int64_t>(op.rows) * chunks * op.k)) {}
    int outputs, chunks;  ///< outputs of a chunk, chunks
    std::uint64_t* keys;  ///< [rows, chunks, k], descending within a chunk
    float* sums;          ///< [rows, chunks, 2]: maximum, sum of exponentials
};

/// Writes a warp's partial result for one row's logits of a chunk of at most Chunk outputs.
template <int Chunk>
__device__ void keep_best(const MatmulTopKOp& op, const Scratch& scratch, const float* logits, int row,
                          int first) {
    constexpr int each = Chunk / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    std::uint64_t keys[each];
    float values[each];
    float max_value = -INFINITY;
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int at = i * warp_size + lane;
        keys[i] = no_key;
        values[i] = -INFINITY;
        if (at >= scratch.outputs || first + at >= op.support) continue;
        const float value = logits[at];
        keys[i] = rank_key(value, static_cast<std::uint32_t>(first + at));
        values[i] = value == value ? value : -INFINITY;
        max_value = fmaxf(max_value, values[i]);
    }
    max_value = warp_max(max_value);
    float sum = 0;
    if (max_value != -INFINITY) {
#pragma unroll
        for (int i = 0; i < each; ++i) sum += expf(values[i] - max_value);
    }
    sum = warp_sum(sum);
    const std::int64_t part = static_cast<std::int64_t>(row) * scratch.chunks + blockIdx.x;
    warp_top(keys, op.k, scratch.keys + part * op.k);
    if (lane != 0) return;
    scratch.sums[2 * part] = max_value;
    scratch.sums[2 * part + 1] = sum;
}

/// Grid: chunks of outputs, tiles of rows. Chunks of 16 outputs need one row tile.
template <Float16Kind H, int TokenTiles, int RowTiles>
__global__ void __launch_bounds__(threads) head_kernel(const MatmulTopKOp op, const Scratch scratch) {
    constexpr int width = HeadTiles<TokenTiles>::width;
    DS_SHARED(HeadTiles<TokenTiles>, shared);
    const int first = static_cast<int>(blockIdx.x) * scratch.outputs;
    const int first_row = static_cast<int>(blockIdx.y) * width;
    make_logits<H, TokenTiles, RowTiles>(
        op.weights, op.x, op.rows, first_row, op.bias, min(scratch.outputs, op.support - first),
        [&](int i) { return first + i; }, shared);
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    constexpr int few = RowTiles == 1 ? warp_size : matmul_topk_chunk;
    for (int row = warp; row < min(width, op.rows - first_row); row += warps)
        keep_best<few>(op, scratch, shared.logits[row], first_row + row, first);
}

constexpr int heads_held = 4;

/// Writes the k best of all chunks of a row to `best`. A chunk whose best key is not among the k best of the
/// chunks has none of the wanted keys, so only k chunks are merged. `shared` holds max_lists * max_topk keys.
__device__ void merge_chunks(const Scratch& scratch, const std::uint64_t* candidates, int k,
                             std::uint64_t* shared, std::uint64_t* best) {
    int kept = 0;
    for (int next = 0; next < scratch.chunks;) {
        std::uint64_t keys[heads_held];
#pragma unroll
        for (int i = 0; i < heads_held; ++i) {
            const int at = i * threads + static_cast<int>(threadIdx.x);
            const int chunk = next + at - kept;
            keys[i] = at < kept                ? best[at]
                      : chunk < scratch.chunks ? candidates[static_cast<std::int64_t>(chunk) * k]
                                               : no_key;
        }
        next += heads_held * threads - kept;
        block_top<warps>(keys, k, shared, best);  // all threads have read `best` before it is written
        kept = k;
        __syncthreads();
    }
    if (k == 1) return;
    for (int i = static_cast<int>(threadIdx.x); i < k * k; i += threads) {
        const std::uint64_t first = best[i / k];
        const auto chunk = static_cast<std::int64_t>(key_index(first)) / scratch.outputs;
        shared[i] = first == no_key ? no_key : candidates[chunk * k + i % k];
    }
    __syncthreads();
    if (threadIdx.x < warp_size) merge_lists(shared, k, k, best);
    __syncthreads();
}

/// One block per row.
__global__ void __launch_bounds__(threads) merge_kernel(const MatmulTopKOp op, const Scratch scratch) {
    static_assert(max_topk <= max_lists);
    DS_SHARED(std::uint64_t[max_lists * max_topk], shared);
    DS_SHARED(std::uint64_t[max_topk], best);
    DS_SHARED(float[warps], maxima);
    DS_SHARED(float[warps], sums);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    wait_for_previous();
    merge_chunks(scratch, scratch.keys + row * scratch.chunks * op.k, op.k, shared, best);
    for (int i = static_cast<int>(threadIdx.x); i < op.k; i += threads) {
        const bool valid = best[i] != no_key;
        op.ids[row * op.k + i] = valid ? static_cast<int>(key_index(best[i])) : -1;
        op.values[row * op.k + i] = valid ? key_value(best[i]) : -INFINITY;
    }
    const float* parts = scratch.sums + 2 * row * scratch.chunks;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    float max_value = -INFINITY;
    for (int c = static_cast<int>(threadIdx.x); c < scratch.chunks; c += threads)
        max_value = fmaxf(max_value, parts[2 * c]);
    max_value = warp_max(max_value);
    if (threadIdx.x % warp_size == 0) maxima[warp] = max_value;
    __syncthreads();
    for (int w = 0; w < warps; ++w) max_value = fmaxf(max_value, maxima[w]);
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < scratch.chunks; c += threads)
        if (parts[2 * c] != -INFINITY) sum += parts[2 * c + 1] * expf(parts[2 * c] - max_value);
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += sums[w];
    op.logsumexp[row] = max_value == -INFINITY ? -INFINITY : max_value + logf(total);
}

}  // namespace

void launch(const MatmulTopKOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const Scratch scratch(op);
    with_head_tiles(dtype, op.rows, [&](auto kind, auto tiles) {
        constexpr Float16Kind H = decltype(kind)::value;
        constexpr int token_tiles = decltype(tiles)::value, width = HeadTiles<token_tiles>::width;
        const dim3 grid(static_cast<unsigned>(scratch.chunks),
                        static_cast<unsigned>((op.rows + width - 1) / width));
        if (scratch.outputs < tile_outputs * head_row_tiles)
            DS_LAUNCH_DEPENDENT((head_kernel<H, token_tiles, 1>), grid, threads, 0, stream, op, scratch);
        else
            DS_LAUNCH_DEPENDENT((head_kernel<H, token_tiles, head_row_tiles>), grid, threads, 0, stream, op,
                                scratch);
    });
    DS_LAUNCH_DEPENDENT(merge_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op, scratch);
}

}  // namespace draftscope::kernels::cuda
