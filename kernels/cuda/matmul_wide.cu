#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.cuh"

namespace draftscope::kernels::cuda {
namespace {

// y = x W^T for many rows of x, limited by the tensor cores. A block computes 128 outputs for 128 rows; both
// go through shared memory, with three chunks of k in flight. The sums equal matmul.cu's bit for bit: they
// are computed by eighths of k, chunk by chunk in the same two steps, and the eighths are added in the same
// order. Only the eighths run one after another instead of on eight warps. A prompt may therefore use this
// kernel and its continuation the other.
constexpr int block_outputs = 128, block_rows = 128;
constexpr int output_warps = 2;  ///< times 4 of rows
constexpr int output_tiles = block_outputs / output_warps / tile_outputs;
constexpr int token_tiles = block_rows / (warps / output_warps) / tile_rows;
constexpr int stages = 3;
constexpr int pieces = chunk / 8;  ///< 16-byte pieces in a row's chunk
constexpr int stage_values = (block_outputs + block_rows) * chunk;
constexpr std::size_t shared_bytes = std::size_t{stages} * stage_values * sizeof(half_t);
static_assert(shared_bytes <= 48 * 1024);  // more would need an opt-in

struct Sums {
    float part[output_tiles][token_tiles][4];   ///< sums of the current eighth
    float total[output_tiles][token_tiles][4];  ///< sums of the previous eighths
};

/// Adds a completed eighth.
__device__ __forceinline__ void fold(Sums& s, bool first) {
#pragma unroll
    for (int r = 0; r < output_tiles; ++r)
#pragma unroll
        for (int i = 0; i < token_tiles; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s.total[r][i][e] = first ? s.part[r][i][e] : s.total[r][i][e] + s.part[r][i][e];
                s.part[r][i][e] = 0.0f;
            }
}

/// Multiplies a chunk of this warp's outputs and rows. Lanes read 16 bytes of adjacent rows, which are
/// contiguous.
template <Float16Kind H>
__device__ __forceinline__ void multiply(Sums& s, const half_t* outputs, const half_t* rows) {
    uint4 b[token_tiles];
#pragma unroll
    for (int i = 0; i < token_tiles; ++i)
        b[i] = *reinterpret_cast<const uint4*>(rows + i * tile_rows * chunk);
#pragma unroll
    for (int r = 0; r < output_tiles; ++r) {
        const half_t* from = outputs + r * tile_outputs * chunk;
        const uint4 low = *reinterpret_cast<const uint4*>(from);
        const uint4 high = *reinterpret_cast<const uint4*>(from + tile_rows * chunk);
#pragma unroll
        for (int i = 0; i < token_tiles; ++i) {
            mma<H>(s.part[r][i], low.x, high.x, low.y, high.y, b[i].x, b[i].y);
            mma<H>(s.part[r][i], low.z, high.z, low.w, high.w, b[i].z, b[i].w);
        }
    }
}

/// Grid: tiles of outputs, tiles of rows.
template <Float16Kind H>
__global__ void __launch_bounds__(threads) wide_kernel(const MatmulOp op) {
    DS_DYNAMIC_SHARED(memory);
    wait_for_previous();
    auto* shared = reinterpret_cast<half_t*>(memory);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, lane = thread % warp_size;
    const int g = lane / 4, t = lane % 4, stride = op.weights.stride;
    const int first_output = static_cast<int>(blockIdx.x) * block_outputs;
    const int first_row = static_cast<int>(blockIdx.y) * block_rows;
    // A thread copies one piece of every 64th row of the stage. Outputs and rows past the end repeat the last
    // ones; their results are not stored.
    constexpr int apart = threads / pieces, each = (block_outputs + block_rows) / apart;
    const half_t* from[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int line = thread / pieces + i * apart;
        const bool weights = line < block_outputs;
        const half_t* matrix = weights ? op.weights.data : op.x.halves;
        const int at = weights ? min(first_output + line, op.weights.n - 1)
                               : min(first_row + line - block_outputs, op.rows - 1);
        from[i] = matrix + static_cast<std::int64_t>(at) * stride + thread % pieces * 8;
    }
    const int chunks = stride / chunk;
    const auto load_stage = [&](int c) {
        if (c < chunks) {
            half_t* to = shared + c % stages * stage_values + thread / pieces * chunk + thread % pieces * 8;
#pragma unroll
            for (int i = 0; i < each; ++i) copy_async(to + i * apart * chunk, from[i] + c * chunk);
        }
        end_of_group();  // possibly empty, so that the number in flight stays the same
    };
    Sums s = {};
    const int own_output = warp % output_warps * output_tiles * tile_outputs;
    const int own_row = warp / output_warps * token_tiles * tile_rows;
    int part = 0;  // current eighth
    for (; part < warps && chunks * (part + 1) / warps == 0; ++part) fold(s, part == 0);
    for (int c = 0; c < stages - 1; ++c) load_stage(c);
    for (int c = 0; c < chunks; ++c) {
        wait_for_groups<stages - 2>();
        __syncthreads();  // chunk c is visible to all threads, and the previous one is no longer read
        load_stage(c + stages - 1);
        const half_t* stage = shared + c % stages * stage_values + t * 8;
        multiply<H>(s, stage + (own_output + g) * chunk, stage + (block_outputs + own_row + g) * chunk);
        for (; part < warps && chunks * (part + 1) / warps == c + 1; ++part) fold(s, part == 0);
    }
#pragma unroll
    for (int r = 0; r < output_tiles; ++r)
#pragma unroll
        for (int i = 0; i < token_tiles; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int output = first_output + own_output + r * tile_outputs + g + (e >= 2 ? 8 : 0);
                const int row = first_row + own_row + i * tile_rows + 2 * t + e % 2;
                if (output >= op.weights.n || row >= op.rows) continue;
                float sum = s.total[r][i][e];
                if (op.bias != nullptr) sum += op.bias[output];
                float* to = op.y + row * op.y_stride + output;
                *to = op.accumulate ? *to + sum : sum;
            }
}

}  // namespace

void launch_wide_matmul(const MatmulOp& op, Float16Kind dtype, LaunchStream stream) {
    const dim3 grid(static_cast<unsigned>((op.weights.n + block_outputs - 1) / block_outputs),
                    static_cast<unsigned>((op.rows + block_rows - 1) / block_rows));
    with_dtype(dtype, [&](auto kind) {
        DS_LAUNCH_DEPENDENT((wide_kernel<decltype(kind)::value>), grid, threads, shared_bytes, stream, op);
    });
}

}  // namespace draftscope::kernels::cuda
