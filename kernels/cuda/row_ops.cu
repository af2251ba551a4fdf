#include <cmath>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels::cuda {
namespace {

// A store may change what a later load reads, as far as the compiler knows. Kernels therefore load several
// values into registers before they store the first one; otherwise each turn of a loop waits for memory.
constexpr int threads = 256;
constexpr int warps = threads / warp_size;

/// Loads values [first + i * threads], i < Held, of a row of `count` values; the others are zero.
template <int Held, typename T>
__device__ __forceinline__ void load_values(T (&values)[Held], const T* from, int first, int count) {
#pragma unroll
    for (int i = 0; i < Held; ++i) values[i] = first + i * threads < count ? from[first + i * threads] : T{0};
}

/// Returns the sum over the block to every thread, always added in the same order. `shared` holds a float per
/// warp and may be reused after the next __syncthreads().
__device__ float block_sum(float value, float* shared) {
    value = warp_sum(value);
    if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += shared[w];
    return sum;
}

constexpr int norm_held = 16;  ///< values of a row per thread and turn; one turn covers 4,096

/// One block per row and group.
template <Float16Kind H>
__global__ void __launch_bounds__(threads) rms_norm_kernel(const RmsNormOp op) {
    DS_SHARED(float[warps], shared);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int first = static_cast<int>(blockIdx.y) * op.width, thread = static_cast<int>(threadIdx.x);
    const float* from = op.x + row * op.x_stride + first;
    // The first turn's values and weights are loaded before the barrier and stay in registers.
    float x[norm_held], weight[norm_held];
#pragma unroll
    for (int i = 0; i < norm_held; ++i)
        weight[i] = thread + i * threads < op.width ? load_constant(op.weight + thread + i * threads) : 0.0f;
    wait_for_previous();
    load_values(x, from, thread, op.width);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < norm_held; ++i) sum += x[i] * x[i];
    constexpr int turn = norm_held * threads;
    for (int at = turn + thread; at < op.width; at += turn) {
        float more[norm_held];
        load_values(more, from, at, op.width);
#pragma unroll
        for (int i = 0; i < norm_held; ++i) sum += more[i] * more[i];
    }
    sum = block_sum(sum, shared);
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(op.width) + op.eps);
    float* y = op.y == nullptr ? nullptr : op.y + row * op.y_stride + first;
    half_t* half = !op.half ? nullptr : op.half.halves + row * op.half_stride + first;
    for (int at = thread; at < op.width; at += turn) {
        // x may be y: the same thread reads each value before it is overwritten.
        float before[norm_held];
        if (at >= turn) {
            load_values(x, from, at, op.width);
            load_values(weight, op.weight, at, op.width);
        }
        if (op.add && y != nullptr) load_values(before, y, at, op.width);
#pragma unroll
        for (int i = 0; i < norm_held; ++i) {
            if (at + i * threads >= op.width) break;
            const float value = x[i] * scale * weight[i];
            if (y != nullptr) y[at + i * threads] = op.add ? before[i] + value : value;
            if (half != nullptr) half[at + i * threads] = to_half<H>(value);
        }
    }
    if (half == nullptr || blockIdx.y != 0) return;
    for (int i = op.groups * op.width + thread; i < op.half_columns; i += threads) half[i] = 0;
}

__device__ __forceinline__ float activated(float value, Activation activation) {
    if (activation == Activation::silu) return value / (1.0f + expf(-value));
    return activation == Activation::relu && value < 0.0f ? 0.0f : value;
}

// Rows are in grid dimension x, which allows 2^31 of them.
template <Float16Kind H>
__global__ void cast_kernel(const CastOp op) {
    wait_for_previous();
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int i = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    if (i >= op.y_columns) return;
    op.y.halves[row * op.y_stride + i] =
        i < op.cols ? to_half<H>(activated(op.x[row * op.x_stride + i], op.activation)) : half_t{0};
}

template <Float16Kind H>
__global__ void add_kernel(const AddOp op) {
    wait_for_previous();
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int i = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    if (i >= op.cols) return;
    float* y = op.y + row * op.y_stride + i;
    const float base = !op.base ? *y : from_half<H>(op.base.halves[row * op.base_stride + i]);
    *y = base + activated(op.x[row * op.x_stride + i], op.activation);
}

template <Float16Kind H>
__global__ void silu_mul_kernel(const SiluMulOp op) {
    wait_for_previous();
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const int i = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    if (i >= op.y_stride) return;
    half_t out = 0;
    if (i < op.width) {
        const float* x = op.x + row * op.x_stride;
        out = to_half<H>(activated(x[i], Activation::silu) * x[op.width + i]);
    }
    op.y.halves[row * op.y_stride + i] = out;
}

constexpr int rope_held = 4;  ///< pairs per thread

/// Pairs of a row: those of q, of k, then of v, whose values need no rotation.
__host__ __device__ __forceinline__ int rope_pairs(const AttentionHeads& shape) {
    return (shape.heads + 2 * shape.kv_heads) * (shape.head_dim / 2);
}

/// Grid: rows, chunks of rope_held * threads pairs.
template <Float16Kind H>
__global__ void __launch_bounds__(threads) rope_store_kernel(const RopeStoreOp op) {
    wait_for_previous();
    const int row = static_cast<int>(blockIdx.x);
    const int half = op.shape.head_dim / 2;
    const int kv = op.shape.kv_heads * op.shape.head_dim;
    const int q_width = op.shape.heads * op.shape.head_dim;
    float* x = op.qkv + row * op.stride;
    const auto position = static_cast<std::int64_t>(op.batch.position[row]);
    const float* cos = op.cos + position * half;
    const float* sin = op.sin + position * half;
    const KvPlanes cache = op.batch.caches[op.batch.sequence[row]];
    const std::int64_t slot = static_cast<std::int64_t>(op.batch.slot[row]) * kv;
    half_t* keys = const_cast<half_t*>(cache.keys(op.layer)) + slot;
    half_t* values = const_cast<half_t*>(cache.values(op.layer)) + slot;
    const int pairs = rope_pairs(op.shape);
    const int first = static_cast<int>(blockIdx.y) * rope_held * threads + static_cast<int>(threadIdx.x);
    float a[rope_held], b[rope_held], c[rope_held], s[rope_held];
#pragma unroll
    for (int i = 0; i < rope_held; ++i) {
        const int p = min(first + i * threads, pairs - 1);
        const int at = p / half * op.shape.head_dim + p % half;
        a[i] = x[at];
        b[i] = x[at + half];
        c[i] = cos[p % half];
        s[i] = sin[p % half];
    }
#pragma unroll
    for (int i = 0; i < rope_held; ++i) {
        const int p = first + i * threads;
        if (p >= pairs) break;
        const int head = p / half, at = head * op.shape.head_dim + p % half;
        const float low = a[i] * c[i] - b[i] * s[i], high = b[i] * c[i] + a[i] * s[i];
        if (head < op.shape.heads) {
            x[at] = low;
            x[at + half] = high;
        } else if (head < op.shape.heads + op.shape.kv_heads) {
            keys[at - q_width] = to_half<H>(low);
            keys[at - q_width + half] = to_half<H>(high);
        } else {
            values[at - q_width - kv] = to_half<H>(a[i]);
            values[at - q_width - kv + half] = to_half<H>(b[i]);
        }
    }
}

__device__ __forceinline__ void copy_row(const CopyRowsOp& op) {
    wait_for_previous();
    const int row = static_cast<int>(blockIdx.x);
    const int i = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
    if (row >= op.count || i >= op.cols) return;
    const std::int64_t from = op.rows == nullptr ? row : op.rows[row];
    op.to[row * op.to_stride + i] = op.from[from * op.from_stride + i];
}
/// Grid: rows, chunks of a row.
__global__ void copy_rows_kernel(const CopyRowsOp op) {
    copy_row(op);
}
/// Grid: the most rows of an op, chunks of the widest row, ops.
__global__ void copy_many_kernel(const __grid_constant__ Many<CopyRowsOp> many) {
    copy_row(many.ops[blockIdx.z]);
}

constexpr int gather_held = 8;

/// A warp copies a row, 16 bytes per lane; strides are multiples of 64 values.
__global__ void __launch_bounds__(threads) gather_kernel(const GatherOp op) {
    const int row = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / warp_size;
    if (row >= op.count) return;
    const int pieces = op.from.stride / 8;
    const auto* from = reinterpret_cast<const uint4*>(op.from.data + static_cast<std::int64_t>(op.rows[row]) *
                                                                         op.from.stride);
    auto* to = reinterpret_cast<uint4*>(op.to + static_cast<std::int64_t>(row) * op.from.stride);
    for (int at = static_cast<int>(threadIdx.x) % warp_size; at < pieces; at += gather_held * warp_size) {
        uint4 values[gather_held];
#pragma unroll
        for (int i = 0; i < gather_held; ++i)  // past the end, the last piece again
            values[i] = __ldcs(from + min(at + i * warp_size, pieces - 1));
#pragma unroll
        for (int i = 0; i < gather_held; ++i)
            if (at + i * warp_size < pieces) to[at + i * warp_size] = values[i];
    }
}

constexpr int compact_held = 4;

/// Copies rows of several sequences to the scratch, in their order, or back. Grid: the most moved rows,
/// planes, sequences.
__global__ void compact_many_kernel(const __grid_constant__ Many<CompactOp> many, half_t* scratch, bool out) {
    const CompactOp& op = many.ops[blockIdx.z];
    const auto plane = static_cast<std::int64_t>(blockIdx.y);
    const int i = static_cast<int>(blockIdx.x);
    if (i >= *op.count) return;
    for (unsigned z = 0; z < blockIdx.z; ++z)
        scratch += static_cast<std::int64_t>(many.ops[z].planes) * many.ops[z].max_count * many.ops[z].width;
    const int slot = op.first + (out ? i : op.path[i]);
    half_t* target_row = op.cache.data + plane * op.cache.plane + static_cast<std::int64_t>(slot) * op.width;
    half_t* saved = scratch + (plane * op.max_count + i) * op.width;
    const half_t* from = out ? saved : target_row;
    half_t* to = out ? target_row : saved;
    for (int at = static_cast<int>(threadIdx.x); at < op.width; at += compact_held * threads) {
        half_t values[compact_held];
        load_values(values, from, at, op.width);
#pragma unroll
        for (int c = 0; c < compact_held; ++c)
            if (at + c * threads < op.width) to[at + c * threads] = values[c];
    }
}

unsigned blocks(std::int64_t count) {
    return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace

void launch(const RmsNormOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const dim3 grid(static_cast<unsigned>(op.rows), static_cast<unsigned>(op.groups));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((rms_norm_kernel<decltype(kind)::value>), grid, threads, 0, stream, op);
    });
}

void launch(const CastOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const dim3 grid(static_cast<unsigned>(op.rows), blocks(op.y_columns));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((cast_kernel<decltype(kind)::value>), grid, threads, 0, stream, op);
    });
}

void launch(const AddOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const dim3 grid(static_cast<unsigned>(op.rows), blocks(op.cols));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((add_kernel<decltype(kind)::value>), grid, threads, 0, stream, op);
    });
}

void launch(const SiluMulOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const dim3 grid(static_cast<unsigned>(op.rows), blocks(op.y_stride));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((silu_mul_kernel<decltype(kind)::value>), grid, threads, 0, stream, op);
    });
}

void launch(const RopeStoreOp& op, Float16Kind dtype, LaunchStream stream) {
    if (op.rows == 0) return;
    const int pairs = rope_pairs(op.shape), turn = rope_held * threads;
    const dim3 grid(static_cast<unsigned>(op.rows), static_cast<unsigned>((pairs + turn - 1) / turn));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((rope_store_kernel<decltype(kind)::value>), grid, threads, 0, stream, op);
    });
}

void launch(std::span<const CopyRowsOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    const auto grid_of = [](int rows, int cols) { return dim3(static_cast<unsigned>(rows), blocks(cols)); };
    if (ops.size() == 1) {
        const CopyRowsOp& op = ops.front();
        if (op.count == 0 || op.cols == 0) return;
        DS_LAUNCH_DEPENDENT(copy_rows_kernel, grid_of(op.count, op.cols), threads, 0, stream, op);
        return;
    }
    in_batches(ops, [&](const Many<CopyRowsOp>& many, unsigned count) {
        int rows = 0, cols = 0;
        for (unsigned i = 0; i < count; ++i) {
            rows = many.ops[i].count > rows ? many.ops[i].count : rows;
            cols = many.ops[i].cols > cols ? many.ops[i].cols : cols;
        }
        if (rows == 0 || cols == 0) return;
        dim3 grid = grid_of(rows, cols);
        grid.z = count;
        DS_LAUNCH_DEPENDENT(copy_many_kernel, grid, threads, 0, stream, many);
    });
}

void launch(const GatherOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.count == 0) return;
    DS_LAUNCH(gather_kernel, static_cast<unsigned>((op.count + warps - 1) / warps), threads, 0, stream, op);
    stream.end_overlap();  // products read the gathered weights before they wait
}

void launch_compact(std::span<const CompactOp> ops, half_t* scratch, LaunchStream stream) {
    in_batches(ops, [&](const Many<CompactOp>& many, unsigned count) {
        int max_moved = 0, planes = 0;
        for (unsigned i = 0; i < count; ++i) {
            max_moved = many.ops[i].max_count > max_moved ? many.ops[i].max_count : max_moved;
            planes = many.ops[i].planes;
        }
        if (max_moved == 0) return;
        // Stream order keeps the scratch valid until the launch that empties it has run.
        const dim3 grid(static_cast<unsigned>(max_moved), static_cast<unsigned>(planes), count);
        for (const bool out : {false, true})
            DS_LAUNCH(compact_many_kernel, grid, threads, 0, stream, many, scratch, out);
    });
}

}  // namespace draftscope::kernels::cuda
