#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// y[m] = x[m] / sqrt(mean(x[m]^2) + eps) * weight. x and y may be the same rows.
void rms_norm(Exec& exec, Rows<const float> x, std::span<const float> weight, float eps, Rows<float> y);

}  // namespace draftscope::kernels
