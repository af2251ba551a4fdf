#pragma once

#include "kernels/device.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Asks for the rows in bf16 as `up` reads them: x, or down x. Null when memory is out. `wide`, unless null,
/// becomes x itself there. Both lie in the device's workspace; the caller holds Device::busy().
const Bf16* ask_rows(Device& device, const Matrix* down, const Matrix& up, Rows<const float> x,
                     const Bf16** wide = nullptr);

}  // namespace draftscope::kernels
