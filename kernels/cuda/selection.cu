#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pick.cuh"
#include "kernels/cuda/top.cuh"

namespace draftscope::kernels::cuda {
namespace {

constexpr int select_warps = 8;
constexpr int select_threads = select_warps * warp_size;
static_assert(select_threads * held == topk_chunk);

struct Scratch {
    __host__ __device__ Scratch(void* data, int rows, int support, int k_in)
        : chunks((support + topk_chunk - 1) / topk_chunk),
          k(k_in),
          keys(static_cast<std::uint64_t*>(data)),
          sums(reinterpret_cast<float*>(keys + static_cast<std::int64_t>(rows) * chunks * k_in)) {}
    int chunks, k;
    std::uint64_t* keys;  ///< [rows, chunks, k]
    float* sums;          ///< [rows, chunks, 2]: maximum, sum of exponentials
};

/// Column of a row's candidate, -1 after its last run. Empty runs are skipped.
__device__ __forceinline__ int run_column(const TopKOp& op, std::int64_t row, int candidate) {
    const std::int32_t* ends = op.run_ends + row * op.runs;
    int first = 0, end = op.runs;  // the first run that ends after the candidate
    while (first < end) {
        const int middle = (first + end) / 2;
        if (ends[middle] > candidate)
            end = middle;
        else
            first = middle + 1;
    }
    return first == op.runs ? -1 : candidate + op.run_shifts[row * op.runs + first];
}

using ListMemory = std::uint64_t[max_lists * max_topk];

/// Merges the chunks of a row. All threads of a block take part, after a barrier.
__device__ void merge_row(const TopKOp& op, const Scratch& scratch, std::int64_t row, ListMemory& shared) {
    DS_SHARED(std::uint64_t[max_topk], best);
    const std::int64_t first = row * scratch.chunks;
    const int candidates = scratch.chunks * op.k;
    std::uint64_t keys[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * select_threads + static_cast<int>(threadIdx.x);
        keys[i] = at < candidates ? scratch.keys[first * op.k + at] : no_key;
    }
    if (scratch.chunks <= max_lists) {
        // The lists of the chunks are in order already.
#pragma unroll
        for (int i = 0; i < held; ++i) {
            const int at = i * select_threads + static_cast<int>(threadIdx.x);
            if (at < candidates) shared[at] = keys[i];
        }
        __syncthreads();
        merge_by_block(shared, scratch.chunks, op.k, best);
    } else {
        block_top<select_warps>(keys, op.k, shared, best);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < op.k; i += select_threads) {
        const bool valid = best[i] != no_key;
        const int candidate = valid ? static_cast<int>(key_index(best[i])) : -1;
        int id = candidate;
        float value = -INFINITY;
        if (valid && op.run_ends != nullptr) {
            value = key_value(best[i]);
        } else if (valid) {
            if (op.candidates != nullptr) id = op.candidates[row * op.candidate_stride + candidate];
            const int column = op.candidates == nullptr || op.columns == nullptr ? candidate : op.columns[id];
            value = op.logits[row * op.stride + column];
        }
        op.ids[row * op.k + i] = id;
        op.values[row * op.k + i] = value;
    }
    if (threadIdx.x != 0) return;
    float max_value = -INFINITY, total = 0;
    for (int c = 0; c < scratch.chunks; ++c) max_value = fmaxf(max_value, scratch.sums[2 * (first + c)]);
    for (int c = 0; c < scratch.chunks; ++c) {
        const float maximum = scratch.sums[2 * (first + c)];
        if (maximum != -INFINITY) total += scratch.sums[2 * (first + c) + 1] * expf(maximum - max_value);
    }
    if (op.logsumexp != nullptr)
        op.logsumexp[row] = max_value == -INFINITY ? -INFINITY : max_value + logf(total);
}

/// Grid: rows, chunks of columns. With `tickets` [rows], the last block of a row merges its chunks.
__global__ void __launch_bounds__(select_threads)
    chunk_kernel(const TopKOp op, Scratch scratch, std::uint32_t* tickets) {
    DS_SHARED(ListMemory, shared);
    DS_SHARED(float[select_warps], maxima);
    DS_SHARED(float[select_warps], sums);
    wait_for_previous();
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int first = static_cast<int>(blockIdx.y) * topk_chunk + warp * held * warp_size + lane;
    const float* logits = op.logits + row * op.stride;
    std::uint64_t keys[held];
    float values[held];
    float max_value = -INFINITY;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int candidate = first + i * warp_size;
        keys[i] = no_key;
        values[i] = -INFINITY;
        if (candidate >= op.support) continue;
        int column = candidate, name = candidate;
        if (op.run_ends != nullptr) {
            column = run_column(op, row, candidate);
            if (column < 0) continue;
            name = op.row_tokens[op.column_rows[column]];
        } else if (op.candidates != nullptr) {
            const int token = op.candidates[row * op.candidate_stride + candidate];
            if (token < 0) continue;
            if (op.columns != nullptr) column = op.columns[token];
        }
        const float value = logits[column];
        keys[i] = rank_key(value, static_cast<std::uint32_t>(name));
        values[i] = value == value ? value : -INFINITY;
        max_value = fmaxf(max_value, values[i]);
    }
    max_value = warp_max(max_value);
    if (lane == 0) maxima[warp] = max_value;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < select_warps; ++w) max_value = fmaxf(max_value, maxima[w]);
    float sum = 0;
    if (max_value != -INFINITY) {
#pragma unroll
        for (int i = 0; i < held; ++i) sum += expf(values[i] - max_value);
    }
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    const std::int64_t part = row * scratch.chunks + blockIdx.y;
    block_top<select_warps>(keys, op.k, shared, scratch.keys + part * op.k);  // also waits for `sums`
    if (threadIdx.x == 0) {
        float total = 0;
        for (int w = 0; w < select_warps; ++w) total += sums[w];
        scratch.sums[2 * part] = max_value;
        scratch.sums[2 * part + 1] = total;
    }
    if (tickets == nullptr || !is_last_block(tickets + row, scratch.chunks)) return;
    merge_row(op, scratch, row, shared);
}

/// One block per row.
__global__ void __launch_bounds__(select_threads) merge_kernel(const TopKOp op, Scratch scratch) {
    DS_SHARED(ListMemory, shared);
    wait_for_previous();
    merge_row(op, scratch, static_cast<std::int64_t>(blockIdx.x), shared);
}

/// One block per row.
__global__ void __launch_bounds__(pick_threads) topk_set_kernel(const TopKSetOp op) {
    DS_SHARED(PickShared, shared);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    list_top(op.x + row * op.stride, op.columns, op.k, op.ids + row * op.k, shared);
}

constexpr int mark_threads = 256;

__global__ void mark_kernel(const UniqueTokensOp op) {
    wait_for_previous();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * mark_threads + threadIdx.x;
    if (i >= op.count) return;
    const int token = op.ids[i];
    if (token >= 0) atomicOr(op.bitmap + token / 32, 1u << (token % 32));
}

__global__ void toggle_kernel(const UpdateIndexSetOp op) {
    const int i = static_cast<int>(blockIdx.x) * mark_threads + static_cast<int>(threadIdx.x);
    if (i < op.count) atomicXor(op.bits + op.toggled[i] / 32, 1u << (op.toggled[i] % 32));
}

__global__ void remap_ids_kernel(const RemapIdsOp op) {
    wait_for_previous();
    const int i = static_cast<int>(blockIdx.x) * mark_threads + static_cast<int>(threadIdx.x);
    const int count = op.d_count == nullptr ? op.count : min(*op.d_count, op.count);
    if (i < count) op.out[i] = op.ids[i] < 0 ? op.ids[i] : op.table[op.ids[i]];
}

constexpr int list_threads = 1024;
constexpr int list_warps = list_threads / warp_size;

/// Few tokens of a small vocabulary are marked and listed by one block, in shared memory.
constexpr int max_unique_words = 8192;
constexpr std::int64_t max_unique_count = 32 * list_threads;

__global__ void __launch_bounds__(list_threads) unique_kernel(const UniqueTokensOp op) {
    DS_SHARED(std::uint32_t[max_unique_words], marks);
    DS_SHARED(int[list_warps], totals);
    constexpr int ahead = 4;
    const int words = bitmap_words(op.vocab), thread = static_cast<int>(threadIdx.x);
    for (int w = thread; w < words; w += list_threads) marks[w] = 0;
    wait_for_previous();
    __syncthreads();
    for (int first = thread; first < op.count; first += ahead * list_threads) {
        int tokens[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            tokens[i] = first + i * list_threads < op.count ? op.ids[first + i * list_threads] : -1;
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            if (tokens[i] >= 0) atomicOr(&marks[tokens[i] / 32], 1u << (tokens[i] % 32));
    }
    __syncthreads();
    const int all = list_bits<list_warps>(marks, words, totals, [&](int at, int token) {
        op.tokens[at] = token;
        op.columns[token] = at;
    });
    if (thread == 0) *op.size = all;
}

/// One block lists the union and clears the bitmap.
__global__ void __launch_bounds__(list_threads) list_kernel(const UniqueTokensOp op) {
    DS_SHARED(int[list_warps], totals);
    wait_for_previous();
    const int words = (op.vocab + 31) / 32;
    const int all = list_bits<list_warps>(op.bitmap, words, totals, [&](int at, int token) {
        op.tokens[at] = token;
        op.columns[token] = at;
    });
    __syncthreads();  // all words have been read
    for (int w = static_cast<int>(threadIdx.x); w < words; w += list_threads) op.bitmap[w] = 0;
    if (threadIdx.x == 0) *op.size = all;
}

/// Lists a persistent set.
__global__ void __launch_bounds__(list_threads) list_index_set_kernel(const UpdateIndexSetOp op) {
    DS_SHARED(int[list_warps], totals);
    list_bits<list_warps>(op.bits, (op.range + 31) / 32, totals,
                          [&](int at, int number) { op.list[at] = number; });
}

}  // namespace

void launch(const TopKOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0) return;
    const Scratch scratch(op.scratch, op.rows, op.support, op.k);
    std::uint32_t* const tickets = op.rows <= max_tickets ? stream.tickets : nullptr;
    const dim3 grid(static_cast<unsigned>(op.rows), static_cast<unsigned>(scratch.chunks));
    DS_LAUNCH_DEPENDENT(chunk_kernel, grid, select_threads, 0, stream, op, scratch, tickets);
    if (tickets == nullptr)
        DS_LAUNCH_DEPENDENT(merge_kernel, static_cast<unsigned>(op.rows), select_threads, 0, stream, op,
                            scratch);
}

void launch(const TopKSetOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(topk_set_kernel, static_cast<unsigned>(op.rows), pick_threads, 0, stream, op);
}

void launch(const UniqueTokensOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count <= max_unique_count && op.vocab <= 32 * max_unique_words) {
        DS_LAUNCH_DEPENDENT(unique_kernel, 1, list_threads, 0, stream, op);
        return;
    }
    if (op.count > 0) {
        const auto blocks = static_cast<unsigned>((op.count + mark_threads - 1) / mark_threads);
        DS_LAUNCH_DEPENDENT(mark_kernel, blocks, mark_threads, 0, stream, op);
    }
    DS_LAUNCH_DEPENDENT(list_kernel, 1, list_threads, 0, stream, op);
}

void launch(const UpdateIndexSetOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count > 0) {
        const auto blocks = static_cast<unsigned>((op.count + mark_threads - 1) / mark_threads);
        DS_LAUNCH(toggle_kernel, blocks, mark_threads, 0, stream, op);
    }
    DS_LAUNCH(list_index_set_kernel, 1, list_threads, 0, stream, op);
}

void launch(const RemapIdsOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count == 0) return;
    const auto blocks = static_cast<unsigned>((op.count + mark_threads - 1) / mark_threads);
    DS_LAUNCH_DEPENDENT(remap_ids_kernel, blocks, mark_threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
