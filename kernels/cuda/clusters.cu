#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

// Selected clusters of a head's rows, as outputs of a product and as tokens.
namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / warp_size;
constexpr int mark_words = max_clusters / 32;
static_assert(max_clusters % 32 == 0);

__device__ __forceinline__ bool marked(const std::uint32_t* marks, int cluster) {
    return (marks[cluster / 32] >> (cluster % 32) & 1u) != 0;
}

/// Marks `count` selected clusters and the last of `clusters`. Ends with a barrier.
__device__ void mark_chosen(const std::int32_t* chosen, std::int64_t count, int clusters,
                            std::uint32_t* marks) {
    for (int w = static_cast<int>(threadIdx.x); w < mark_words; w += threads) marks[w] = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < count; i += threads)
        atomicOr(marks + chosen[i] / 32, 1u << (chosen[i] % 32));
    if (threadIdx.x == 0) atomicOr(marks + (clusters - 1) / 32, 1u << ((clusters - 1) % 32));
    __syncthreads();
}

/// One block: the number of clusters is a few hundred.
__global__ void __launch_bounds__(threads) clusters_kernel(const ClustersOp op) {
    DS_SHARED(std::uint32_t[mark_words], marks);
    DS_SHARED(int[max_clusters], first_columns);  // first column of each
    DS_SHARED(int[warps], totals);
    mark_chosen(op.chosen, static_cast<std::int64_t>(op.rows) * op.count, op.clusters, marks);
    const int each = (op.clusters + threads - 1) / threads;
    const int begin = min(static_cast<int>(threadIdx.x) * each, op.clusters);
    const int end = min(begin + each, op.clusters);
    int local_columns = 0, all = 0;
    for (int c = begin; c < end; ++c)
        local_columns += marked(marks, c) ? padded_cluster_rows(op.sizes[c]) : 0;
    int at = block_before<warps>(local_columns, totals, all);
    for (int c = begin; c < end; ++c) {
        first_columns[c] = at;
        at += marked(marks, c) ? padded_cluster_rows(op.sizes[c]) : 0;
    }
    if (threadIdx.x == 0) *op.column_count = all;
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    for (int c = warp; c < op.clusters; c += warps) {
        if (!marked(marks, c)) continue;
        const int first = op.first[c], rows = padded_cluster_rows(op.sizes[c]);
        for (int i = lane; i < rows; i += warp_size) {
            op.columns[first_columns[c] + i] = first + i;
            if (op.token_columns != nullptr && i < op.sizes[c])
                op.token_columns[op.row_tokens[first + i]] = first_columns[c] + i;
        }
    }
    const int runs = op.count + 1;
    for (int row = warp; row < op.rows; row += warps) {
        int num_candidates = 0;  // candidates in the previous runs
        for (int next = 0; next < runs; next += warp_size) {
            const int i = next + lane;
            int cluster = -1;
            if (i < op.count) cluster = op.chosen[static_cast<std::int64_t>(row) * op.count + i];
            if (i == op.count) cluster = op.clusters - 1;
            const int size = cluster < 0 ? 0 : op.sizes[cluster];
            const int until = num_candidates + warp_running(size);
            if (cluster >= 0) {
                const std::int64_t to = static_cast<std::int64_t>(row) * runs + i;
                op.run_ends[to] = until;
                op.run_shifts[to] = first_columns[cluster] - (until - size);
            }
            num_candidates += warp_sum(size);
        }
    }
}

/// Grid: sets, chunks of `threads` tokens.
__global__ void __launch_bounds__(threads) token_bits_kernel(const ClusterTokensOp op) {
    DS_SHARED(std::uint32_t[mark_words], marks);
    const auto set = static_cast<std::int64_t>(blockIdx.x);
    mark_chosen(op.chosen + set * op.count, op.count, op.clusters, marks);
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int token = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    const int cluster = token < op.vocab ? op.cluster_of[token] : -1;
    const std::uint32_t bit = cluster >= 0 && marked(marks, cluster) ? 1u << lane : 0u;
    const std::uint32_t word = warp_sum(bit);  // each lane sets a different bit
    if (lane == 0 && token < op.vocab) op.bitmap[set * bitmap_words(op.vocab) + token / 32] = word;
}

/// One block per set.
__global__ void __launch_bounds__(threads) list_tokens_kernel(const ClusterTokensOp op) {
    DS_SHARED(int[warps], totals);
    const auto set = static_cast<std::int64_t>(blockIdx.x);
    const int words = bitmap_words(op.vocab);
    std::int32_t* const tokens = op.tokens + set * op.stride;
    const int all = list_bits<warps>(op.bitmap + set * words, words, totals,
                                     [&](int at, int token) { tokens[at] = token; });
    if (threadIdx.x == 0) op.size[set] = all;
}

}  // namespace

void launch(const ClustersOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    DS_LAUNCH(clusters_kernel, 1, threads, 0, stream, op);
}

void launch(const ClusterTokensOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.sets == 0) return;
    const auto pieces = static_cast<unsigned>((op.vocab + threads - 1) / threads);
    const auto sets = static_cast<unsigned>(op.sets);
    DS_LAUNCH(token_bits_kernel, (dim3(sets, pieces)), threads, 0, stream, op);
    DS_LAUNCH(list_tokens_kernel, sets, threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
