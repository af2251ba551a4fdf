#pragma once

#include <span>

#include "kernels/matrix.h"

/// What a draft head needs of a product, without the logits leaving the device that computed them.
namespace draftscope::kernels {

/// Can head_candidates() run for this matrix?
bool selects_on_device(const Matrix& weights, int support, int k);

/// topk() and logsumexp() over the first `support` outputs of x W^T (+ bias), in one pass that writes no
/// logits and one wait. ids and values are [rows, k].
void head_candidates(const Matrix& weights, Rows<const float> x, const float* bias, int support, int k,
                     Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums);
/// The same through two factors, up (down x): what lies between stays on the device.
void head_candidates(const Matrix& down, const Matrix& up, Rows<const float> x, int support, int k,
                     Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums);
/// head_top_set() of a matrix on a device.
void device_top_set(const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids);
/// The same through two factors.
void device_top_set(const Matrix& down, const Matrix& up, Rows<const float> x, int k, Rows<std::int32_t> ids);

}  // namespace draftscope::kernels
