#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Columns per partial sum of exp_sums().
inline constexpr int exp_sums_block = 512;

/// Computes the partial sums of exponentials of each row that softmax sampling needs. The largest value of
/// row m, ignoring NaN, is tops[m]; 0 if there is none. The sum of exp((x[m, j] - tops[m]) * scale) over
/// block b of the columns, in a fixed order, is sums[m, b]. A NaN counts as exp(-inf). Shape of sums: [M,
/// ceil(cols / exp_sums_block)].
void exp_sums(Exec& exec, Rows<const float> x, float scale, std::span<float> tops, Rows<float> sums);

/// out[j] = exp((x[j] - shift) * scale), with a relative error of about 1e-7, at most e^88. A NaN counts as
/// exp(-inf). Runs on the calling thread; `exec` selects the instruction set. `out` may be x.
void exp_row(const Exec& exec, std::span<const float> x, float shift, float scale, std::span<float> out);

}  // namespace draftscope::kernels
