#pragma once

#include "kernels/device.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Asks for the rows in bf16 as `up` reads them: x, or down x. Null when memory is out. They lie in
/// the device's workspace; the caller holds Device::busy().
const half_t* ask_rows(Device& device, const Matrix* down, const Matrix& up, Rows<const float> x);

/// Downloads what a selection left, ids and values [rows, k] and sums [rows] one behind the other, and waits.
void bring_candidates(Device& device, const std::int32_t* packed, int rows, int k, Rows<std::int32_t> ids,
                      Rows<float> values, std::span<float> sums);

}  // namespace draftscope::kernels
