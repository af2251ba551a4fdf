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
          m(router_kept(op.weights.n, op.k)),
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
    make_logits<H>(op.weights, op.x, op.rows, first_row, nullptr, count, column_at, shared);
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

/// One block per row.
__global__ void __launch_bounds__(pick_threads) pick_kernel(const MatmulTopKSetOp op, const Stripes stripes) {
    DS_SHARED(PickShared, shared);
    DS_SHARED(std::uint32_t[max_router_columns / 32], marks);
    DS_SHARED(int, cut);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    const int candidates = stripes.chunks * stripes.m, words = (op.weights.n + 31) / 32;
    std::int32_t* ids = op.ids + row * op.k;
    wait_for_previous();
    std::uint64_t keys[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * pick_threads + thread;
        keys[i] = at < candidates ? stripes.keys[row * candidates + at] : no_key;
    }
    if (thread == 0) cut = 0;
    for (int w = thread; w < words; w += pick_threads) marks[w] = 0;
    // The k best are those whose first digits are at least `prefix`; it exists because keys differ.
    std::uint64_t prefix = 0;
    int left = op.k, shift = 56;
    for (bool enough = false; !enough; shift -= 8) {
        clear_counts(shared);
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (keys[i] != no_key && (shift == 56 || keys[i] >> (shift + 8) == prefix))
                atomicAdd(&shared.counts[keys[i] >> shift & 0xffu], 1);
        find_digit(shared, left);
        prefix = prefix << 8 | shared.digit;
        left = shared.left;
        enough = shared.counts[shared.digit] == left || shift == 0;
        __syncthreads();  // before the counts are cleared
    }
    shift += 8;
#pragma unroll
    for (int i = 0; i < held; ++i) {
        if (keys[i] == no_key || keys[i] >> shift < prefix) continue;
        const std::uint32_t column = key_index(keys[i]);
        atomicOr(&marks[column / 32], 1u << (column % 32));
        if ((i * pick_threads + thread) % stripes.m == stripes.m - 1) atomicMax(&cut, 1);
    }
    __syncthreads();
    if (cut != 0) return list_top(stripes.scores + row * op.weights.n, op.weights.n, op.k, ids, shared);
    list_bits<pick_warps>(marks, words, shared.totals, [&](int at, int column) { ids[at] = column; });
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
