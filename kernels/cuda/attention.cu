#include <cmath>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

// Softmax attention over logical positions, 64 positions per block of sums. A row sees its sequence's prefix,
// which is contiguous in the cache, then its tree ancestors in arbitrary slots. Blocks inside every row's
// prefix are read once for all rows of a tile; later blocks are read row by row, with the same arithmetic.
// The second kernel merges the sums of a (row, head) in the order of the blocks. A row's result therefore
// does not depend on the other rows of the call, nor on whether a token is in the prefix or in a tree.
constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int block = attention_block;
constexpr int max_pairs = 16;  ///< (row, head) pairs of a tile, unless one row has more heads per key

/// Dynamic shared memory: keys and values of a block, queries of the tile, weights.
struct Layout {
    __host__ __device__ Layout(int head_dim, int pairs)
        : dim(head_dim), wide((head_dim + 7) / 8 * 8), row(wide + 8), pairs(pairs) {}
    // 8 values of padding, so that lanes that read the same column of adjacent keys use different banks.
    __host__ __device__ std::size_t keys() const { return 0; }
    __host__ __device__ std::size_t values() const { return static_cast<std::size_t>(block) * row * 2; }
    __host__ __device__ std::size_t queries() const { return 2 * values(); }
    __host__ __device__ std::size_t weights() const {
        return queries() + static_cast<std::size_t>(pairs) * wide * sizeof(float);
    }
    __host__ __device__ std::size_t bytes() const {
        return weights() + static_cast<std::size_t>(pairs) * block * sizeof(float);
    }
    int dim, wide, row, pairs;  ///< values of a head, padded with zeros to a multiple of 16 bytes
};

/// Copies the keys and values of `count` positions, starting at `start`; the rest of the block becomes zero.
__device__ void load_block(const AttentionOp& op, const KvPlanes& cache, int kv_head, int row, int start,
                           int count, half_t* keys, half_t* values, const Layout& layout) {
    const int kv = op.shape.kv_heads * op.shape.head_dim;
    const int prefix = op.places.prefix[row];
    const std::int32_t* tail = op.places.ancestor_slots + op.places.ancestor_first[row];
    const half_t* all_keys = cache.keys(op.layer) + static_cast<std::int64_t>(kv_head) * layout.dim;
    const half_t* all_values = cache.values(op.layer) + static_cast<std::int64_t>(kv_head) * layout.dim;
    if (layout.wide != layout.dim) {
        // Copies value by value in the rare case that a head's values are not aligned to 16 bytes.
        for (int i = static_cast<int>(threadIdx.x); i < block * layout.wide; i += threads) {
            const int p = i / layout.wide, column = i % layout.wide;
            half_t k = 0, v = 0;
            if (p < count && column < layout.dim) {
                const int position = start + p;
                const std::int64_t slot = position < prefix ? position : tail[position - prefix];
                k = all_keys[slot * kv + column];
                v = all_values[slot * kv + column];
            }
            keys[p * layout.row + column] = k;
            values[p * layout.row + column] = v;
        }
        return;
    }
    // head_dim is a multiple of 8 and kv of head_dim, so 16-byte accesses are aligned.
    const int pieces = layout.dim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < block * pieces; i += threads) {
        const int p = i / pieces, piece = i % pieces;
        uint4 k = make_uint4(0, 0, 0, 0), v = k;
        if (p < count) {
            const int position = start + p;
            const std::int64_t slot = position < prefix ? position : tail[position - prefix];
            k = *reinterpret_cast<const uint4*>(all_keys + slot * kv + piece * 8);
            v = *reinterpret_cast<const uint4*>(all_values + slot * kv + piece * 8);
        }
        *reinterpret_cast<uint4*>(keys + p * layout.row + piece * 8) = k;
        *reinterpret_cast<uint4*>(values + p * layout.row + piece * 8) = v;
    }
}

template <Float16Kind H>
__device__ __forceinline__ float2 unpack_pair(unsigned packed) {
    if constexpr (H == Float16Kind::f16)
        return make_float2(from_half<H>(static_cast<half_t>(packed & 0xffffu)),
                           from_half<H>(static_cast<half_t>(packed >> 16)));
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
}

template <Float16Kind H>
__device__ float dot(const float* q, const half_t* k, int dim) {
    float sum = 0;
    for (int i = 0; i < dim; i += 8) {
        const uint4 packed = *reinterpret_cast<const uint4*>(k + i);
        const float4 a = *reinterpret_cast<const float4*>(q + i);
        const float4 b = *reinterpret_cast<const float4*>(q + i + 4);
        const float2 k0 = unpack_pair<H>(packed.x), k1 = unpack_pair<H>(packed.y),
                     k2 = unpack_pair<H>(packed.z), k3 = unpack_pair<H>(packed.w);
        sum = fmaf(a.x, k0.x, sum);
        sum = fmaf(a.y, k0.y, sum);
        sum = fmaf(a.z, k1.x, sum);
        sum = fmaf(a.w, k1.y, sum);
        sum = fmaf(b.x, k2.x, sum);
        sum = fmaf(b.y, k2.y, sum);
        sum = fmaf(b.z, k3.x, sum);
        sum = fmaf(b.w, k3.y, sum);
    }
    return sum;
}

/// Adds the block in shared memory to the sums of pairs [first, end) of the tile. Pair p is head p % group of
/// row p / group; `counts` is the number of valid positions of each pair's row.
template <Float16Kind H>
__device__ void sum_block(const AttentionOp& op, int kv_head, int first_row, int first, int end, int start,
                          int number, char* shared, const Layout& layout) {
    const auto* keys = reinterpret_cast<const half_t*>(shared + layout.keys());
    const auto* values = reinterpret_cast<const half_t*>(shared + layout.values());
    const auto* queries = reinterpret_cast<const float*>(shared + layout.queries());
    auto* weights = reinterpret_cast<float*>(shared + layout.weights());
    const int group = op.shape.heads / op.shape.kv_heads;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    // Scores: a thread takes one position, and every second pair.
    const int position = static_cast<int>(threadIdx.x) % block;
    for (int p = first + static_cast<int>(threadIdx.x) / block; p < end; p += threads / block) {
        const int row = first_row + p / group;
        const int count = op.places.prefix[row] + op.places.ancestor_count[row];
        weights[p * block + position] =
            start + position < count
                ? op.scale * dot<H>(queries + p * layout.wide, keys + position * layout.row, layout.wide)
                : -INFINITY;
    }
    __syncthreads();
    // Softmax of each pair's 64 scores: a warp takes every fourth pair.
    for (int p = first + warp; p < end; p += warps) {
        float* mine = weights + p * block;
        const float a = mine[lane], b = mine[lane + warp_size];
        const float max_value = warp_max(fmaxf(a, b));
        // A block has at least one position of each of its pairs; others give exp(-inf) = 0.
        const float wa = max_value == -INFINITY ? 0.0f : expf(a - max_value);
        const float wb = max_value == -INFINITY ? 0.0f : expf(b - max_value);
        const float sum = warp_sum(wa + wb);
        mine[lane] = wa;
        mine[lane + warp_size] = wb;
        if (lane == 0) {
            const int row = first_row + p / group - op.first_row;
            const int head = kv_head * group + p % group;
            float* to =
                op.partial + ((static_cast<std::int64_t>(row) * op.shape.heads + head) * op.blocks + number) *
                                 (layout.dim + 2);
            to[layout.dim] = max_value;
            to[layout.dim + 1] = sum;
        }
    }
    __syncthreads();
    // Weighted values: a thread takes two adjacent columns of one pair.
    const int halves = layout.dim / 2;
    for (int i = static_cast<int>(threadIdx.x); i < (end - first) * halves; i += threads) {
        const int p = first + i / halves, column = i % halves * 2;
        const float* mine = weights + p * block;
        float x = 0, y = 0;
        for (int k = 0; k < block; ++k) {
            const float2 v =
                unpack_pair<H>(*reinterpret_cast<const unsigned*>(values + k * layout.row + column));
            x = fmaf(mine[k], v.x, x);
            y = fmaf(mine[k], v.y, y);
        }
        const int row = first_row + p / group - op.first_row;
        const int head = kv_head * group + p % group;
        float* to =
            op.partial + ((static_cast<std::int64_t>(row) * op.shape.heads + head) * op.blocks + number) *
                             (layout.dim + 2);
        to[column] = x;
        to[column + 1] = y;
    }
}

/// Grid: tiles, key heads, blocks of positions.
template <Float16Kind H>
__global__ void __launch_bounds__(threads) partial_kernel(const AttentionOp op, int pairs) {
    DS_DYNAMIC_SHARED(shared);
    const Layout layout(op.shape.head_dim, pairs);
    auto* keys = reinterpret_cast<half_t*>(shared + layout.keys());
    auto* values = reinterpret_cast<half_t*>(shared + layout.values());
    auto* queries = reinterpret_cast<float*>(shared + layout.queries());
    const int number = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
    const int first_row = op.places.tiles[2 * blockIdx.x], rows = op.places.tiles[2 * blockIdx.x + 1];
    const int start = number * block;
    const int group = op.shape.heads / op.shape.kv_heads;

    int longest = 0, shortest_prefix = 0x7fffffff;
    for (int r = first_row; r < first_row + rows; ++r) {
        longest = max(longest, op.places.prefix[r] + op.places.ancestor_count[r]);
        shortest_prefix = min(shortest_prefix, op.places.prefix[r]);
    }
    if (start >= longest) return;  // uniform across the block

    for (int i = static_cast<int>(threadIdx.x); i < rows * group * layout.wide; i += threads) {
        const int p = i / layout.wide, column = i % layout.wide;
        queries[i] = column >= layout.dim
                         ? 0.0f
                         : op.q[(first_row + p / group) * op.q_stride +
                                static_cast<std::int64_t>(kv_head * group + p % group) * layout.dim + column];
    }
    const KvPlanes cache = op.places.caches[op.places.sequence[first_row]];
    if (start + block <= shortest_prefix) {
        load_block(op, cache, kv_head, first_row, start, block, keys, values, layout);
        __syncthreads();
        sum_block<H>(op, kv_head, first_row, 0, rows * group, start, number, shared, layout);
        return;
    }
    for (int r = 0; r < rows; ++r) {
        const int row = first_row + r;
        const int count = min(op.places.prefix[row] + op.places.ancestor_count[row] - start, block);
        if (count <= 0) continue;  // uniform across the block
        __syncthreads();           // the previous row no longer uses the shared memory
        load_block(op, cache, kv_head, row, start, count, keys, values, layout);
        __syncthreads();
        sum_block<H>(op, kv_head, first_row, r * group, (r + 1) * group, start, number, shared, layout);
    }
}

/// Merges the blocks of a (row, head) in order. Grid: rows, heads.
template <Float16Kind H>
__global__ void merge_kernel(const AttentionOp op) {
    const int r = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int row = op.first_row + r, dim = op.shape.head_dim;
    const int count = op.places.prefix[row] + op.places.ancestor_count[row];
    const int used = (count + block - 1) / block;
    const float* sums =
        op.partial + (static_cast<std::int64_t>(r) * op.shape.heads + head) * op.blocks * (dim + 2);
    float max_value = -INFINITY;
    for (int b = 0; b < used; ++b)
        max_value = fmaxf(max_value, sums[static_cast<std::int64_t>(b) * (dim + 2) + dim]);
    for (int column = static_cast<int>(threadIdx.x); column < dim; column += static_cast<int>(blockDim.x)) {
        float value = 0, total = 0;
        for (int b = 0; b < used; ++b) {
            const float* part = sums + static_cast<std::int64_t>(b) * (dim + 2);
            const float weight = expf(part[dim] - max_value);
            value = fmaf(weight, part[column], value);
            total = fmaf(weight, part[dim + 1], total);
        }
        op.y[static_cast<std::int64_t>(row) * op.y_stride + head * dim + column] = to_half<H>(value / total);
    }
    if (head != 0) return;
    for (int column = op.shape.heads * dim + static_cast<int>(threadIdx.x); column < op.y_stride;
         column += static_cast<int>(blockDim.x))
        op.y[static_cast<std::int64_t>(row) * op.y_stride + column] = 0;
}

}  // namespace

void launch(const AttentionOp& op, Float16Kind dtype, cudaStream_t stream) {
    if (op.rows == 0) return;
    const int group = op.shape.heads / op.shape.kv_heads;
    const int pairs = group > max_pairs ? group : max_pairs / group * group;
    const Layout layout(op.shape.head_dim, pairs);
    constexpr std::size_t plain_limit = 48 * 1024;
    const dim3 grid(static_cast<unsigned>(op.tiles), static_cast<unsigned>(op.shape.kv_heads),
                    static_cast<unsigned>(op.blocks));
    const dim3 joins(static_cast<unsigned>(op.rows), static_cast<unsigned>(op.shape.heads));
    with_dtype(dtype, [&](auto kind) {
        constexpr Float16Kind H = decltype(kind)::value;
        if (layout.bytes() > plain_limit)
            cudaFuncSetAttribute(partial_kernel<H>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(layout.bytes()));
        DS_LAUNCH((partial_kernel<H>), grid, threads, layout.bytes(), stream, op, pairs);
        DS_LAUNCH((merge_kernel<H>), joins, 128, 0, stream, op);
    });
}

}  // namespace draftscope::kernels::cuda
