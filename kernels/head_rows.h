#pragma once

#include <span>

#include "kernels/matrix.h"

/// What a draft head needs of a product, without the logits leaving the device that computed them.
namespace draftscope::kernels {

/// Can the pair below run for this matrix?
bool selects_on_device(const Matrix& weights, int support, int k);

/// x W^T (+ bias), kept on the device until the next op with operands on the host. Waits for its end, so that
/// what is timed around it is its own.
void head_logits(const Matrix& weights, Rows<const float> x, const float* bias = nullptr);
/// The same through two factors, up (down x): what lies between stays on the device.
void head_logits(const Matrix& down, const Matrix& up, Rows<const float> x);
/// Of the logits just made, over the first `support` outputs: topk() and logsumexp(). ids and values are
/// [rows, k]; k <= support.
void select_logits(const Matrix& weights, int rows, int support, int k, Rows<std::int32_t> ids,
                   Rows<float> values, std::span<float> sums);
/// head_top_set() of a matrix on a device.
void device_top_set(const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids);
/// The same through two factors.
void device_top_set(const Matrix& down, const Matrix& up, Rows<const float> x, int k, Rows<std::int32_t> ids);

}  // namespace draftscope::kernels
