#include "kernels/cuda/head_tiles.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pick.cuh"
#include "kernels/cuda/top.cuh"

// A router's product fused with the selection of its best tokens. Each block computes the scores of every
// chunks-th token and keeps the best few of each row. Frequent tokens have low ids, so this spreads them over
// all blocks. The k best of those kept are the k best of all, unless the last one kept by some block is among
// them. That block may then have more, and the row is searched in full.
namespace draftscope::kernels::cuda {
namespace {

static_assert(held * pick_threads == max_router_candidates);

struct Stripes {
    explicit Stripes(const MatmulTopKSetOp& op)
        : chunks(router_stripes(op.weights.n)),
          m(router_block_topk(op.weights.n, op.k)),
          scores(static_cast<float*>(op.scratch)),
          keys(reinterpret_cast<std::uint64_t*>(static_cast<char*>(op.scratch) +
                                                router_scores_bytes(op.rows, op.weights.n))) {}
    int chunks, m;
    float* scores;        ///< [rows, n]
    std::uint64_t* keys;  ///< [rows, chunks, m]
};

/// Grid: stripes, tiles of rows.
template <Float16Kind H, int TokenTiles>
__global__ void __launch_bounds__(threads) router_kernel(const MatmulTopKSetOp op, const Stripes stripes) {
    constexpr int width = HeadTiles<TokenTiles>::width, each = matmul_topk_chunk / warp_size;
    DS_SHARED(HeadTiles<TokenTiles>, shared);
    const int stripe = static_cast<int>(blockIdx.x), n = op.weights.n;
    const int first_row = static_cast<int>(blockIdx.y) * width;
    const int count = (n - stripe + stripes.chunks - 1) / stripes.chunks;
    const auto column_at = [&](int i) { return stripe + i * stripes.chunks; };
    make_logits<H>(op.weights, op.x.halves, op.rows, first_row, nullptr, count, column_at, shared);
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    for (int r = warp; r < min(width, op.rows - first_row); r += warps) {
        const std::int64_t row = first_row + r;
        std::uint64_t keys[each];
#pragma unroll
        for (int i = 0; i < each; ++i) {
            const int at = i * warp_size + lane;
            keys[i] = no_key;
            if (at >= count) continue;
            const float score = shared.logits[r][at];
            stripes.scores[row * n + column_at(at)] = score;
            keys[i] = rank_key(score, static_cast<std::uint32_t>(column_at(at)));
        }
        warp_top(keys, stripes.m, stripes.keys + (row * stripes.chunks + stripe) * stripes.m);
    }
}

constexpr int digit_bits = 11, bins = 1 << digit_bits;
static_assert(bins == 2 * pick_threads);

struct PickMemory {
    PickShared list;  ///< of a search in full
    int counts[bins];
    std::uint32_t marks[max_router_columns / 32];
    std::uint64_t largest[pick_warps], inverse_of_smallest[pick_warps];
    int digit, left, equal, cut;
};

/// Returns the largest of a value of each thread to all threads.
__device__ __forceinline__ std::uint64_t block_max(std::uint64_t value, std::uint64_t (&maxima)[pick_warps]) {
    const std::uint64_t local_max = warp_max(value);
    if (threadIdx.x % warp_size == 0) maxima[threadIdx.x / warp_size] = local_max;
    __syncthreads();
    return warp_max(maxima[threadIdx.x % warp_size]);
}

/// Returns the lowest of the k largest keys, or a number between it and the next lower key. Keys are counted
/// by their distance from the smallest, in 2,048 bins, then those of the bin that contains the wanted key in
/// bins of their own. Scores of a row have few different exponents, so digits of the keys themselves would
/// share few bins.
__device__ std::uint64_t find_kth_key(const std::uint64_t (&keys)[held], int k, PickMemory& memory) {
    std::uint64_t largest = no_key, inverse = 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        if (keys[i] == no_key) continue;
        largest = max(largest, keys[i]);
        inverse = max(inverse, ~keys[i]);
    }
    largest = block_max(largest, memory.largest);
    std::uint64_t low = ~block_max(inverse, memory.inverse_of_smallest), width = largest - low + 1;
    int shift = max(64 - __clzll(static_cast<long long>(largest - low)) - digit_bits, 0);
    for (int left = k;;) {
        const int first = bins - 1 - 2 * static_cast<int>(threadIdx.x);  // a thread's two bins
        memory.counts[first] = memory.counts[first - 1] = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (keys[i] != no_key && keys[i] - low < width)
                atomicAdd(&memory.counts[(keys[i] - low) >> shift], 1);
        __syncthreads();
        const int high_count = memory.counts[first], low_count = memory.counts[first - 1];
        int all = 0;
        const int above = block_before<pick_warps>(high_count + low_count, memory.list.totals, all);
        if (above < left && left <= above + high_count + low_count) {
            const bool is_low = left > above + high_count;
            memory.digit = is_low ? first - 1 : first;
            memory.left = left - above - (is_low ? high_count : 0);
            memory.equal = is_low ? low_count : high_count;
        }
        __syncthreads();
        low += static_cast<std::uint64_t>(memory.digit) << shift;
        left = memory.left;
        if (memory.equal == left || shift == 0) return low;
        width = std::uint64_t{1} << shift;
        shift = max(shift - digit_bits, 0);
    }
}

/// One block per row.
__global__ void __launch_bounds__(pick_threads) pick_kernel(const MatmulTopKSetOp op, const Stripes stripes) {
    DS_SHARED(PickMemory, memory);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    const int candidates = stripes.chunks * stripes.m, words = (op.weights.n + 31) / 32;
    std::int32_t* ids = op.ids + row * op.k;
    if (thread == 0) memory.cut = 0;
    for (int w = thread; w < words; w += pick_threads) memory.marks[w] = 0;
    wait_for_previous();
    std::uint64_t keys[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * pick_threads + thread;
        keys[i] = at < candidates ? stripes.keys[row * candidates + at] : no_key;
    }
    const std::uint64_t kth_key = find_kth_key(keys, op.k, memory);
#pragma unroll
    for (int i = 0; i < held; ++i) {
        if (keys[i] == no_key || keys[i] < kth_key) continue;
        const std::uint32_t column = key_index(keys[i]);
        atomicOr(&memory.marks[column / 32], 1u << (column % 32));
        if ((i * pick_threads + thread) % stripes.m == stripes.m - 1) atomicMax(&memory.cut, 1);
    }
    __syncthreads();
    if (memory.cut != 0)
        return list_top(stripes.scores + row * op.weights.n, op.weights.n, op.k, ids, memory.list);
    list_bits<pick_warps>(memory.marks, words, memory.list.totals,
                          [&](int at, int column) { ids[at] = column; });
}

}  // namespace

void launch(const MatmulTopKSetOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const Stripes stripes(op);
    with_head_tiles(dtype, op.rows, [&](auto kind, auto tiles) {
        constexpr Float16Kind H = decltype(kind)::value;
        constexpr int token_tiles = decltype(tiles)::value, width = HeadTiles<token_tiles>::width;
        const dim3 grid(static_cast<unsigned>(stripes.chunks),
                        static_cast<unsigned>((op.rows + width - 1) / width));
        DS_LAUNCH_DEPENDENT((router_kernel<H, token_tiles>), grid, threads, 0, stream, op, stripes);
    });
    DS_LAUNCH_DEPENDENT(pick_kernel, static_cast<unsigned>(op.rows), pick_threads, 0, stream, op, stripes);
}

}  // namespace draftscope::kernels::cuda
