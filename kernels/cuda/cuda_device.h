#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/device.h"

namespace draftscope::kernels {

/// A Device whose stream benchmarks may use for their own kernels.
class CudaDevice : public Device {
  public:
    virtual cudaStream_t stream() const = 0;
};
Result<std::unique_ptr<CudaDevice>> open_cuda_device(const CudaOptions& options = {});

}  // namespace draftscope::kernels
