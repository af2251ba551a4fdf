#pragma once

#include <cstdint>

/// Products of few inputs that keep only the outputs above a bound of their row. Plain pointers only, as in
/// matmul_kernels.h.
namespace draftscope::kernels {

struct MatmulWork;

/// The outputs of one row of activations above the bound, in order.
struct ThresholdedRow {
    float bound = 0;  ///< outputs above it are kept; +inf = none
    int count = 0;
    float* values = nullptr;          ///< capacity: 16 more than the number of outputs
    std::int32_t* indices = nullptr;  ///< output numbers; same capacity
};

/// Appends the outputs of blocks [begin, end) above their bounds to rows[0 .. M). Block 0 begins with output
/// number `first`. The bits are those of the instruction set's MatmulBlocks, for up to max_threshold_inputs
/// inputs.
void threshold_matmul_int8_amx(const MatmulWork& work, int begin, int end, int first, ThresholdedRow* rows);
void threshold_matmul_bf16_amx(const MatmulWork& work, int begin, int end, int first, ThresholdedRow* rows);
inline constexpr int max_threshold_inputs = 128;

}  // namespace draftscope::kernels
