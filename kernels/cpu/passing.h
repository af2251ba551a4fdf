#pragma once

#include <cstdint>

/// Products of thin factors whose outputs are kept where they pass a bound of their row and written nowhere
/// else. Plain pointers only, as in matmul_kernels.h.
namespace draftscope::kernels {

struct MatmulWork;

/// The outputs of one row of activations that passed, in order.
struct PassingRow {
    float bound = 0;  ///< kept: what is above; +inf = nothing
    int count = 0;
    float* values = nullptr;         ///< room for 16 more than there will be
    std::int32_t* places = nullptr;  ///< the same
};

/// Appends to rows[0 .. M) the outputs of blocks [begin, end) above their bounds; block 0 begins with output
/// number `first`. The bits of the MatmulBlocks of its instruction set, for up to most_passing_inputs inputs.
void passing_int8_amx(const MatmulWork& work, int begin, int end, int first, PassingRow* rows);
void passing_bf16_amx(const MatmulWork& work, int begin, int end, int first, PassingRow* rows);
inline constexpr int most_passing_inputs = 128;

}  // namespace draftscope::kernels
