#include <cmath>

#include "kernels/cuda/head_tiles.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/top.cuh"

// A head's product fused with its selection. A block computes the logits of a chunk of outputs tile by tile
// and keeps them in shared memory. It writes the k best of each row, their maximum and their sum. Those of a
// single row are merged by the block that finishes last, those of several rows by a second kernel, with one
// block per row. The logits are never written.
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

/// Shared memory of merge_row().
struct MergeMemory {
    std::uint64_t keys[max_lists * max_topk];
    std::uint64_t best[max_topk];
    float maxima[warps], sums[warps];
};
template <int TokenTiles>
union HeadMemory {
    HeadTiles<TokenTiles> tiles;
    MergeMemory merge;  ///< once the tiles are no longer needed
};

/// Writes the k largest of the chunks' best keys to `best`. A thread holds Held keys at a time.
template <int Held>
__device__ void best_of_chunks(const Scratch& scratch, const std::uint64_t* candidates, int k,
                               std::uint64_t* shared, std::uint64_t* best) {
    int num_best = 0;
    for (int next = 0; next < scratch.chunks;) {
        std::uint64_t keys[Held];
#pragma unroll
        for (int i = 0; i < Held; ++i) {
            const int at = i * threads + static_cast<int>(threadIdx.x);
            const int chunk = next + at - num_best;
            keys[i] = at < num_best            ? best[at]
                      : chunk < scratch.chunks ? candidates[static_cast<std::int64_t>(chunk) * k]
                                               : no_key;
        }
        next += Held * threads - num_best;
        block_top<warps>(keys, k, shared, best);  // all threads have read `best` before it is written
        num_best = k;
        __syncthreads();
    }
}

/// Writes the k best of all chunks of a row to `best`. A chunk whose best key is not among the k best of the
/// chunks has none of the wanted keys, so only k chunks are merged. `shared` holds max_lists * max_topk keys.
__device__ void merge_chunks(const Scratch& scratch, const std::uint64_t* candidates, int k,
                             std::uint64_t* shared, std::uint64_t* best) {
    if (scratch.chunks <= threads)
        best_of_chunks<1>(scratch, candidates, k, shared, best);
    else
        best_of_chunks<4>(scratch, candidates, k, shared, best);
    if (k == 1) return;
    for (int i = static_cast<int>(threadIdx.x); i < k * k; i += threads) {
        const std::uint64_t first = best[i / k];
        const auto chunk = static_cast<std::int64_t>(key_index(first)) / scratch.outputs;
        shared[i] = first == no_key ? no_key : candidates[chunk * k + i % k];
    }
    __syncthreads();
    merge_by_block(shared, k, k, best);
    __syncthreads();
}

/// Merges the chunks of a row. All threads of a block take part, after a barrier.
__device__ void merge_row(const MatmulTopKOp& op, const Scratch& scratch, std::int64_t row,
                          MergeMemory& memory) {
    static_assert(max_topk <= max_lists);
    const std::uint64_t* best = memory.best;
    merge_chunks(scratch, scratch.keys + row * scratch.chunks * op.k, op.k, memory.keys, memory.best);
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
    if (threadIdx.x % warp_size == 0) memory.maxima[warp] = max_value;
    __syncthreads();
    for (int w = 0; w < warps; ++w) max_value = fmaxf(max_value, memory.maxima[w]);
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < scratch.chunks; c += threads)
        if (parts[2 * c] != -INFINITY) sum += parts[2 * c + 1] * expf(parts[2 * c] - max_value);
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) memory.sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += memory.sums[w];
    op.logsumexp[row] = max_value == -INFINITY ? -INFINITY : max_value + logf(total);
}

/// Blocks per multiprocessor that hide the latency of memory.
constexpr int min_blocks(int token_tiles, int row_tiles) {
    if (token_tiles == 4) return row_tiles == 1 ? 2 : 1;
    return token_tiles == 1 && row_tiles == 1 ? 3 : 2;
}

/// Grid: chunks of outputs, tiles of rows. Chunks of 16 outputs need one row tile. With `ticket`, which is
/// for a single row, the last block merges the chunks.
template <Float16Kind H, int TokenTiles, int RowTiles>
__global__ void __launch_bounds__(threads, min_blocks(TokenTiles, RowTiles))
    head_kernel(const MatmulTopKOp op, const Scratch scratch, std::uint32_t* ticket) {
    constexpr int width = HeadTiles<TokenTiles>::width;
    DS_SHARED(HeadMemory<TokenTiles>, memory);
    HeadTiles<TokenTiles>& shared = memory.tiles;
    const int first = static_cast<int>(blockIdx.x) * scratch.outputs;
    const int first_row = static_cast<int>(blockIdx.y) * width;
    make_logits<H, TokenTiles, RowTiles>(
        op.weights, op.x.halves, op.rows, first_row, op.bias, min(scratch.outputs, op.support - first),
        [&](int i) { return first + i; }, shared);
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    constexpr int few = RowTiles == 1 ? warp_size : matmul_topk_chunk;
    for (int row = warp; row < min(width, op.rows - first_row); row += warps)
        keep_best<few>(op, scratch, shared.logits[row], first_row + row, first);
    if constexpr (TokenTiles == 1)
        if (ticket != nullptr && is_last_block(ticket, scratch.chunks))
            merge_row(op, scratch, 0, memory.merge);
}

/// One block per row.
__global__ void __launch_bounds__(threads) merge_kernel(const MatmulTopKOp op, const Scratch scratch) {
    DS_SHARED(MergeMemory, memory);
    wait_for_previous();
    merge_row(op, scratch, static_cast<std::int64_t>(blockIdx.x), memory);
}

}  // namespace

void launch(const MatmulTopKOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const Scratch scratch(op);
    std::uint32_t* const ticket = op.rows == 1 ? stream.tickets : nullptr;
    with_head_tiles(dtype, op.rows, [&](auto kind, auto tiles) {
        constexpr Float16Kind H = decltype(kind)::value;
        constexpr int token_tiles = decltype(tiles)::value, width = HeadTiles<token_tiles>::width;
        const dim3 grid(static_cast<unsigned>(scratch.chunks),
                        static_cast<unsigned>((op.rows + width - 1) / width));
        if (scratch.outputs < tile_outputs * head_row_tiles)
            DS_LAUNCH_DEPENDENT((head_kernel<H, token_tiles, 1>), grid, threads, 0, stream, op, scratch,
                                ticket);
        else
            DS_LAUNCH_DEPENDENT((head_kernel<H, token_tiles, head_row_tiles>), grid, threads, 0, stream, op,
                                scratch, ticket);
    });
    if (ticket == nullptr)
        DS_LAUNCH_DEPENDENT(merge_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op, scratch);
}

}  // namespace draftscope::kernels::cuda
