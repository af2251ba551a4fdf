#pragma once

#include <vector>

#include "base/spans.h"
#include "kernels/device.h"

namespace draftscope::kernels {

/// Buffers that ops with operands in host memory pass through; one such op at a time (Device::busy).
struct DeviceWorkspace {
    DeviceBuffer x, x_half, y, bias, list, select, ids;
    DeviceBuffer narrow, narrow_half;  ///< between two factors
    DeviceBuffer logits;
    std::vector<float> rows;  ///< on the host, contiguous

    /// Rows [x.rows, matrix.stride] in bf16 on the device; null when its memory is used up.
    const half_t* upload_rounded(Device& device, const DeviceMatrix& matrix, Rows<const float> from);
    /// Null when the device's memory is used up; `refuse` has then been called.
    template <typename T>
    T* reserve(Device& device, DeviceBuffer& buffer, std::size_t count) {
        if (!buffer.reserve(device, count * sizeof(T))) {
            device.set_out_of_memory("out of device memory");
            return nullptr;
        }
        return buffer.as<T>();
    }
};

}  // namespace draftscope::kernels
