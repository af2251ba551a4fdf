#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Columns of one sum of exp_sums().
inline constexpr int exp_sums_block = 512;

/// tops[m] = the largest value of row m (NaN apart; 0 when there is none), sums[m, b] = sum of
/// exp((x[m, j] - tops[m]) * scale) over block b of the columns, in a fixed order of summation. A NaN counts
/// as exp(-inf). sums is [M, ceil(cols / exp_sums_block)]. What softmax sampling needs of a row: which block
/// a draw falls into.
void exp_sums(Exec& exec, Rows<const float> x, float scale, std::span<float> tops, Rows<float> sums);

/// out[j] = exp((x[j] - shift) * scale) to about 1e-7 relative, at most e^88; a NaN counts as exp(-inf). Runs
/// on the calling thread; `exec` names the instruction set. `out` may be x.
void exp_row(const Exec& exec, std::span<const float> x, float shift, float scale, std::span<float> out);

}  // namespace draftscope::kernels
