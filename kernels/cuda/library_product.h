#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/device_ops.h"

namespace draftscope::kernels::cuda {

/// Products by cuBLASLt, which is loaded when it is first wanted: the program starts without it. Its sums
/// depend on the shape of the call, so nothing of `--numerics exact` goes through it.
class LibraryProduct {
  public:
    /// One queue's: its workspace belongs to this object. Error: why there is no library.
    static Result<std::unique_ptr<LibraryProduct>> open();
    virtual ~LibraryProduct() = default;
    virtual const std::string& version() const = 0;
    /// MatmulOp for all outputs. False, with nothing asked for, where the library has no way to do it.
    virtual bool run(const MatmulOp& op, Halves halves, cudaStream_t stream) = 0;
};

}  // namespace draftscope::kernels::cuda
