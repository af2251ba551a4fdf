#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/simt.h"
#include "kernels/ops.h"
#include "kernels/ops/random_values.h"

/// Launchers of kernels. Each enqueues its kernels on `stream` and returns; errors surface on the stream.
namespace draftscope::kernels::cuda {

// One function for each op of the list in kernels/ops.h. `dtype` is the device's 16-bit format.
#define DS_OP(name, Op) void launch(const Op& op, Float16Kind dtype, LaunchStream stream);
#define DS_OP_BATCH(name, Op) void launch(std::span<const Op> ops, Float16Kind dtype, LaunchStream stream);
DS_DEVICE_OPS(DS_OP, DS_OP_BATCH)
#undef DS_OP
#undef DS_OP_BATCH
/// MatmulOp's values for many rows and all outputs.
void launch_wide_matmul(const MatmulOp& op, Float16Kind dtype, LaunchStream stream);
/// Rows are copied through `scratch`, compact_scratch() values, because
/// sources may also be destinations.
void launch_compact(std::span<const CompactOp> ops, half_t* scratch, LaunchStream stream);
inline std::size_t compact_scratch(std::span<const CompactOp> ops) {
    std::size_t values = 0;
    for (const CompactOp& op : ops)
        values += static_cast<std::size_t>(op.planes) * static_cast<std::size_t>(op.max_count) *
                  static_cast<std::size_t>(op.width);
    return values;
}

/// Ops that one launch takes by value, within the 4 KB of kernel parameters that every CUDA version supports.
template <typename Op>
struct Many {
    static constexpr int capacity = static_cast<int>(4000 / sizeof(Op));
    Op ops[capacity];
};
/// Calls `run` with the ops of each launch, and their number.
template <typename Op, typename Run>
void in_batches(std::span<const Op> ops, Run run) {
    Many<Op> many{};
    for (std::size_t first = 0; first < ops.size(); first += Many<Op>::capacity) {
        const std::span<const Op> part = ops.subspan(first);
        int count = 0;
        for (; count < Many<Op>::capacity && count < static_cast<int>(part.size()); ++count)
            many.ops[count] = part[count];
        run(many, static_cast<unsigned>(count));
    }
}

enum class Reads { plain, evict_first };
/// Reads `bytes` (a multiple of 16) and discards them, to measure the cost of streaming weights. `sink` is
/// one float that is never written.
void launch_read(const void* data, std::size_t bytes, Reads how, float* sink, cudaStream_t stream);
/// An empty kernel.
void launch_empty(cudaStream_t stream);
/// An empty kernel that may start before the preceding kernel ends (programmatic dependent launch, sm_90 and
/// later).
void launch_early(cudaStream_t stream);
/// The most blocks of 256 threads in a cluster; 0 = the GPU has no clusters.
int largest_cluster();
/// Whether the kernels that run on this GPU can wait for the previous kernel: code for sm_90 or later.
bool can_overlap_kernels();
/// Fills rows [rows, padded_columns(k)] from `to` on with generated values; padding becomes zero.
void launch_fill_random(half_t* to, int rows, int k, const RandomValues& values, Float16Kind dtype,
                        LaunchStream stream);
/// Normally distributed random values, rounded.
void launch_fill_normal(half_t* data, std::size_t count, float scale, std::uint64_t seed,
                        cudaStream_t stream);

}  // namespace draftscope::kernels::cuda
