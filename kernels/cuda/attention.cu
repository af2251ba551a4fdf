#include <cmath>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

// Softmax attention over logical positions, 64 positions per block of sums. A row sees its sequence's prefix,
// which is contiguous in the cache, then its tree ancestors in arbitrary slots. A block of positions is read
// once for all rows of a tile. Inside every row's prefix, its slots are the positions. In later blocks, the
// rows see different slots, and a table has the place of each (row, position) in shared memory. The second
// kernel merges the sums of a (row, head) in the order of the blocks. A row's result therefore does not
// depend on the other rows of the call, nor on whether a token is in the prefix or in a tree.
constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int block = attention_block;
constexpr int at_once = 2;  ///< sums that a thread computes side by side

/// Dynamic shared memory: keys and values of a block, queries of the tile, weights, slots of the block and
/// the table of places.
struct Layout {
    __host__ __device__ Layout(int head_dim, int group, int tile_rows)
        : dim(head_dim),
          wide((head_dim + 7) / 8 * 8),
          row(wide + 8),
          pairs(group * tile_rows),
          rows(tile_rows) {}
    // 8 values of padding, so that lanes that read the same column of adjacent keys use different banks.
    __host__ __device__ std::size_t keys() const { return 0; }
    __host__ __device__ std::size_t values() const { return static_cast<std::size_t>(block) * row * 2; }
    __host__ __device__ std::size_t queries() const { return 2 * values(); }
    __host__ __device__ std::size_t weights() const {
        return queries() + static_cast<std::size_t>(pairs) * wide * sizeof(float);
    }
    __host__ __device__ std::size_t slots() const {
        return weights() + static_cast<std::size_t>(pairs) * block * sizeof(float);
    }
    __host__ __device__ std::size_t indices() const { return slots() + (block + 4) * sizeof(int); }
    __host__ __device__ std::size_t bytes() const {
        return indices() + static_cast<std::size_t>(rows) * block;
    }
    int dim, wide,
        row;          ///< values of a head; padded with zeros to a multiple of 16 bytes; and to use all banks
    int pairs, rows;  ///< most of a tile
};

/// What a block of threads computes: a tile's rows and a block of positions of a key head.
struct Part {
    int first_row, rows, kv_head, group, start, number;
};

/// Slots of a block of positions in shared memory, and where each row's positions are among them.
struct Table {
    int* slots;             ///< [block], then their number
    int* row_slots;         ///< [rows, block], shares memory with the weights
    std::uint8_t* indices;  ///< [rows, block]
};

/// Lists the slots that rows [first, end) of the tile see in the block, each once, and the place of every
/// (row, position). Returns their number; if it exceeds `block`, the table is invalid. Begins with a barrier.
__device__ int list_slots(const AttentionOp& op, const Part& part, int first, int end, const Table& table) {
    __syncthreads();  // the previous rows no longer use the shared memory
    if (threadIdx.x == 0) table.slots[block] = 0;
    for (int i = static_cast<int>(threadIdx.x); i < (end - first) * block; i += threads) {
        const int row = part.first_row + first + i / block, position = part.start + i % block;
        const int prefix = op.batch.prefix[row], count = prefix + op.batch.ancestor_count[row];
        table.row_slots[i] = position < prefix ? position
                             : position < count
                                 ? op.batch.ancestor_slots[op.batch.ancestor_first[row] + position - prefix]
                                 : -1;
    }
    __syncthreads();
    // A slot has one position, so only rows at the same position can share it.
    for (int position = static_cast<int>(threadIdx.x); position < block; position += threads)
        for (int r = 0; r < end - first; ++r) {
            const int slot = table.row_slots[r * block + position];
            if (slot < 0) continue;
            int like = 0;
            while (table.row_slots[like * block + position] != slot) ++like;
            int index = 0;
            if (like < r) {
                index = table.indices[(first + like) * block + position];
            } else {
                index = atomicAdd(table.slots + block, 1);
                if (index < block) table.slots[index] = slot;
            }
            table.indices[(first + r) * block + position] = static_cast<std::uint8_t>(index);
        }
    __syncthreads();
    return table.slots[block];
}

/// Starts to copy the keys and values of `count` slots. With Listed they are slots[i], else start + i.
template <bool Listed>
__device__ void load_block(const AttentionOp& op, const Part& part, const int* slots, int count, half_t* keys,
                           half_t* values, const Layout& layout) {
    const KvPlanes cache = op.batch.caches[op.batch.sequence[part.first_row]];
    const int kv = op.shape.kv_heads * op.shape.head_dim;
    const half_t* all_keys = cache.keys(op.layer) + static_cast<std::int64_t>(part.kv_head) * layout.dim;
    const half_t* all_values = cache.values(op.layer) + static_cast<std::int64_t>(part.kv_head) * layout.dim;
    const auto slot_at = [&](int i) { return static_cast<std::int64_t>(Listed ? slots[i] : part.start + i); };
    if (layout.wide != layout.dim) {
        // Copies value by value in the rare case that a head's values are not aligned to 16 bytes.
        for (int i = static_cast<int>(threadIdx.x); i < count * layout.wide; i += threads) {
            const int p = i / layout.wide, column = i % layout.wide;
            const std::int64_t from = slot_at(p) * kv + column;
            keys[p * layout.row + column] = column < layout.dim ? all_keys[from] : half_t{0};
            values[p * layout.row + column] = column < layout.dim ? all_values[from] : half_t{0};
        }
        return;
    }
    // head_dim is a multiple of 8 and kv of head_dim, so 16-byte accesses are aligned.
    const int pieces = layout.dim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < count * pieces; i += threads) {
        const int p = i / pieces, column = i % pieces * 8;
        const std::int64_t from = slot_at(p) * kv + column;
        copy_async(keys + p * layout.row + column, all_keys + from);
        copy_async(values + p * layout.row + column, all_values + from);
    }
}

/// Starts to copy the queries of the tile, which are adjacent within a row.
__device__ void load_queries(const AttentionOp& op, const Part& part, float* queries, const Layout& layout) {
    const int width = part.group * layout.wide;
    const float* from = op.q + part.first_row * op.q_stride +
                        static_cast<std::int64_t>(part.kv_head) * part.group * layout.dim;
    if (layout.wide != layout.dim || op.q_stride % 4 != 0) {
        for (int i = static_cast<int>(threadIdx.x); i < part.rows * width; i += threads) {
            const int head = i % width / layout.wide, column = i % layout.wide;
            queries[i] =
                column >= layout.dim ? 0.0f : from[i / width * op.q_stride + head * layout.dim + column];
        }
        return;
    }
    for (int i = static_cast<int>(threadIdx.x) * 4; i < part.rows * width; i += threads * 4)
        copy_async(queries + i, from + i / width * op.q_stride + i % width);
}

template <Float16Kind H>
__device__ __forceinline__ float2 unpack_pair(unsigned packed) {
    if constexpr (H == Float16Kind::f16)
        return make_float2(from_half<H>(static_cast<half_t>(packed & 0xffffu)),
                           from_half<H>(static_cast<half_t>(packed >> 16)));
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
}

/// Products of queries with keys. Two independent sums hide the latency of each other.
template <Float16Kind H>
__device__ void dots(const float* const (&q)[at_once], const half_t* const (&k)[at_once], int dim,
                     float (&sums)[at_once]) {
    for (int i = 0; i < dim; i += 8)
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const uint4 packed = *reinterpret_cast<const uint4*>(k[n] + i);
            const float4 a = *reinterpret_cast<const float4*>(q[n] + i);
            const float4 b = *reinterpret_cast<const float4*>(q[n] + i + 4);
            const float2 k0 = unpack_pair<H>(packed.x), k1 = unpack_pair<H>(packed.y),
                         k2 = unpack_pair<H>(packed.z), k3 = unpack_pair<H>(packed.w);
            sums[n] = fmaf(a.x, k0.x, sums[n]);
            sums[n] = fmaf(a.y, k0.y, sums[n]);
            sums[n] = fmaf(a.z, k1.x, sums[n]);
            sums[n] = fmaf(a.w, k1.y, sums[n]);
            sums[n] = fmaf(b.x, k2.x, sums[n]);
            sums[n] = fmaf(b.y, k2.y, sums[n]);
            sums[n] = fmaf(b.z, k3.x, sums[n]);
            sums[n] = fmaf(b.w, k3.y, sums[n]);
        }
}

/// Computes the sums of pairs [first, end) of the tile over the block in shared memory. Pair p is head
/// p % group of row p / group. Positions after a row's last one have weight 0 and are not read.
template <Float16Kind H, bool Listed>
__device__ void sum_block(const AttentionOp& op, const Part& part, int first, int end, const Table& table,
                          char* shared, const Layout& layout) {
    const auto* keys = reinterpret_cast<const half_t*>(shared + layout.keys());
    const auto* values = reinterpret_cast<const half_t*>(shared + layout.values());
    const auto* queries = reinterpret_cast<const float*>(shared + layout.queries());
    auto* weights = reinterpret_cast<float*>(shared + layout.weights());
    const int group = part.group;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const auto count_of = [&](int p) {
        if (!Listed) return block;
        const int row = part.first_row + p / group;
        return min(op.batch.prefix[row] + op.batch.ancestor_count[row] - part.start, block);
    };
    const auto sums_of = [&](int p) {
        const int row = part.first_row + p / group - op.first_row, head = part.kv_head * group + p % group;
        return op.partial +
               ((static_cast<std::int64_t>(row) * op.shape.heads + head) * op.blocks + part.number) *
                   (layout.dim + 2);
    };
    // Scores: a thread takes one position, and every second pair.
    constexpr int apart = threads / block;
    const int position = static_cast<int>(threadIdx.x) % block;
    for (int p = first + static_cast<int>(threadIdx.x) / block; p < end; p += at_once * apart) {
        const float* q[at_once];
        const half_t* k[at_once];
        bool valid[at_once];
        float scores[at_once] = {};
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const int pair = min(p + n * apart, end - 1);
            valid[n] = position < count_of(pair);
            int index = position;
            if (Listed) index = valid[n] ? table.indices[pair / group * block + position] : 0;
            q[n] = queries + pair * layout.wide;
            k[n] = keys + index * layout.row;
        }
        dots<H>(q, k, layout.wide, scores);
#pragma unroll
        for (int n = 0; n < at_once; ++n)
            if (p + n * apart < end)
                weights[(p + n * apart) * block + position] = valid[n] ? op.scale * scores[n] : -INFINITY;
    }
    __syncthreads();
    // Softmax of each pair's 64 scores: a warp takes every fourth pair.
    for (int p = first + warp; p < end; p += warps) {
        float* pair_weights = weights + p * block;
        const float a = pair_weights[lane], b = pair_weights[lane + warp_size];
        const float max_value = warp_max(fmaxf(a, b));
        // A pair without a position in this block has sums of 0, which nothing reads.
        const float wa = max_value == -INFINITY ? 0.0f : expf(a - max_value);
        const float wb = max_value == -INFINITY ? 0.0f : expf(b - max_value);
        const float sum = warp_sum(wa + wb);
        pair_weights[lane] = wa;
        pair_weights[lane + warp_size] = wb;
        if (lane == 0) {
            float* to = sums_of(p);
            to[layout.dim] = max_value;
            to[layout.dim + 1] = sum;
        }
    }
    __syncthreads();
    // Weighted values: a thread takes two adjacent columns of a pair.
    const int halves = layout.dim / 2, items = (end - first) * halves;
    for (int i = static_cast<int>(threadIdx.x); i < items; i += at_once * threads) {
        int pair[at_once], column[at_once], count[at_once], common = block;
        float2 sums[at_once];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const int item = min(i + n * threads, items - 1);
            pair[n] = first + item / halves;
            column[n] = item % halves * 2;
            count[n] = i + n * threads < items ? count_of(pair[n]) : 0;
            common = min(common, max(count[n], 0));
            sums[n] = make_float2(0, 0);
        }
        const auto add = [&](int n, int k) {
            const int index = Listed ? table.indices[pair[n] / group * block + k] : k;
            const float2 v =
                unpack_pair<H>(*reinterpret_cast<const unsigned*>(values + index * layout.row + column[n]));
            const float weight = weights[pair[n] * block + k];
            sums[n].x = fmaf(weight, v.x, sums[n].x);
            sums[n].y = fmaf(weight, v.y, sums[n].y);
        };
        for (int k = 0; k < common; ++k)
#pragma unroll
            for (int n = 0; n < at_once; ++n) add(n, k);
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            for (int k = common; k < count[n]; ++k) add(n, k);
            if (i + n * threads >= items) continue;
            float* to = sums_of(pair[n]);
            to[column[n]] = sums[n].x;
            to[column[n] + 1] = sums[n].y;
        }
    }
}

/// Grid: tiles, key heads, blocks of positions.
template <Float16Kind H>
__global__ void __launch_bounds__(threads) partial_kernel(const AttentionOp op, int tile_rows) {
    DS_DYNAMIC_SHARED(shared);
    wait_for_previous();
    const int group = op.shape.heads / op.shape.kv_heads, number = static_cast<int>(blockIdx.z);
    const Layout layout(op.shape.head_dim, group, tile_rows);
    const Part part{op.batch.tiles[2 * blockIdx.x],
                    op.batch.tiles[2 * blockIdx.x + 1],
                    static_cast<int>(blockIdx.y),
                    group,
                    number * block,
                    number};
    auto* keys = reinterpret_cast<half_t*>(shared + layout.keys());
    auto* values = reinterpret_cast<half_t*>(shared + layout.values());
    const Table table{reinterpret_cast<int*>(shared + layout.slots()),
                      reinterpret_cast<int*>(shared + layout.weights()),
                      reinterpret_cast<std::uint8_t*>(shared + layout.indices())};

    // A lane reads one row, so that the loads do not wait for each other. A tile has at most 16 rows.
    const int row = part.first_row + min(static_cast<int>(threadIdx.x) % warp_size, part.rows - 1);
    const auto prefix = static_cast<unsigned>(op.batch.prefix[row]);
    const auto count = prefix + static_cast<unsigned>(op.batch.ancestor_count[row]);
    const auto start = static_cast<unsigned>(part.start);
    if (start >= __reduce_max_sync(all_lanes, count)) return;  // uniform across the block

    load_queries(op, part, reinterpret_cast<float*>(shared + layout.queries()), layout);
    if (start + block <= __reduce_min_sync(all_lanes, prefix)) {
        load_block<false>(op, part, nullptr, block, keys, values, layout);
        end_of_group();
        wait_for_groups<0>();
        __syncthreads();
        sum_block<H, false>(op, part, 0, part.rows * group, table, shared, layout);
        return;
    }
    // Usually all rows' slots fit. Otherwise fewer rows are taken at a time; the slots of one row always fit.
    for (int first = 0, end = part.rows; first < part.rows; first = end, end = part.rows) {
        int slots = list_slots(op, part, first, end, table);
        while (slots > block) {
            end = first + (end - first) / 2;
            slots = list_slots(op, part, first, end, table);
        }
        load_block<true>(op, part, table.slots, slots, keys, values, layout);
        end_of_group();
        wait_for_groups<0>();
        __syncthreads();
        sum_block<H, true>(op, part, first * group, end * group, table, shared, layout);
    }
}

/// Merges the blocks of a (row, head) in order. Grid: rows, heads.
template <Float16Kind H>
__global__ void merge_kernel(const AttentionOp op) {
    wait_for_previous();
    const int r = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int row = op.first_row + r, dim = op.shape.head_dim;
    const int count = op.batch.prefix[row] + op.batch.ancestor_count[row];
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
        op.y.halves[static_cast<std::int64_t>(row) * op.y_stride + head * dim + column] =
            to_half<H>(value / total);
    }
    if (head != 0) return;
    for (int column = op.shape.heads * dim + static_cast<int>(threadIdx.x); column < op.y_stride;
         column += static_cast<int>(blockDim.x))
        op.y.halves[static_cast<std::int64_t>(row) * op.y_stride + column] = 0;
}

}  // namespace

void launch(const AttentionOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const int group = op.shape.heads / op.shape.kv_heads;
    const int tile_rows = attention_tile_rows(op.shape);
    const Layout layout(op.shape.head_dim, group, tile_rows);
    constexpr std::size_t plain_limit = 48 * 1024;
    const dim3 grid(static_cast<unsigned>(op.tiles), static_cast<unsigned>(op.shape.kv_heads),
                    static_cast<unsigned>(op.blocks));
    const dim3 joins(static_cast<unsigned>(op.rows), static_cast<unsigned>(op.shape.heads));
    with_dtype(dtype, [&](auto kind) {
        constexpr Float16Kind H = decltype(kind)::value;
        if (layout.bytes() > plain_limit)
            cudaFuncSetAttribute(partial_kernel<H>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(layout.bytes()));
        DS_LAUNCH_DEPENDENT((partial_kernel<H>), grid, threads, layout.bytes(), stream, op, tile_rows);
        DS_LAUNCH_DEPENDENT((merge_kernel<H>), joins, 128, 0, stream, op);
    });
}

}  // namespace draftscope::kernels::cuda
