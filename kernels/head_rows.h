#pragma once

#include <span>

#include "kernels/matrix.h"
#include "kernels/ops.h"
#include "kernels/row_major_matrix.h"

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
/// The same over rows `at` of a store on a device, read where they lie; ids are places in `at`.
bool selects_on_device(const RowMajorMatrix& store, int support, int k);
void head_candidates(Device& device, const RowMajorMatrix& store, std::span<const TokenId> at,
                     Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values,
                     std::span<float> sums);
/// What it asks the device for, of whoever holds Device::busy(). `at`: there, their number in front;
/// `logits` [x_rows, support] and `scratch`, topk_scratch_bytes() bytes, are room.
struct ScatteredRows {
    const std::int32_t* at = nullptr;
    int support = 0;
    const half_t* x = nullptr;  ///< [x_rows, stride of the store]
    int x_rows = 0, k = 0;
    float* logits = nullptr;
    void* scratch = nullptr;
    std::int32_t* ids = nullptr;  ///< the answer, as TopKOp leaves it
    float* values = nullptr;
    float* sums = nullptr;
};
void ask_candidates(Device& device, const RowMajorMatrix& store, const ScatteredRows& rows);
/// matmul_topk_set() of a matrix on a device.
void device_top_set(const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids);
/// The same through two factors.
void device_top_set(const Matrix& down, const Matrix& up, Rows<const float> x, int k, Rows<std::int32_t> ids);

}  // namespace draftscope::kernels
