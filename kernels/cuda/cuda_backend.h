#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/backend.h"

namespace draftscope::kernels {

/// A Device whose stream benchmarks may use for their own kernels.
class CudaBackend : public Backend {
  public:
    using Backend::Backend;
    virtual cudaStream_t stream() const = 0;
};
Result<std::unique_ptr<CudaBackend>> open_cuda_device(const CudaOptions& options = {});

}  // namespace draftscope::kernels
