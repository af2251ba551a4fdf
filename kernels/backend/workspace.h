#pragma once

#include <vector>

#include "base/spans.h"
#include "kernels/backend.h"

namespace draftscope::kernels {

/// Staging buffers of ops with operands in host memory. The caller holds Backend::submit_mutex(), so that one
/// op uses them at a time.
struct DeviceWorkspace {
    DeviceBuffer x, y, bias, list;
    ActivationBuffer x_half;
    std::vector<float> rows;  ///< contiguous, in host memory

    /// Enqueues the upload and rounding of rows to 16 bits: [from.rows, matrix.stride]. Returns null if
    /// memory runs out.
    Activations upload_rounded(Backend& backend, const DeviceMatrix& matrix, Rows<const float> from);
    /// Returns memory for `count` values, or null after Backend::set_out_of_memory().
    template <typename T>
    T* reserve(Backend& backend, DeviceBuffer& buffer, std::size_t count) {
        if (!buffer.reserve(backend, count * sizeof(T))) {
            backend.set_out_of_memory("an op's operands");
            return nullptr;
        }
        return buffer.as<T>();
    }
};

}  // namespace draftscope::kernels
