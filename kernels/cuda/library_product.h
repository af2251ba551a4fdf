#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/ops.h"

namespace draftscope::kernels::cuda {

/// Products by cuBLASLt, which is loaded on first use: the program starts without it. Its sums depend on the
/// shape of the call, so `--numerics exact` never uses it.
class LibraryProduct {
  public:
    /// Creates the products of one stream; the object owns the workspace. An error says why the library is
    /// unavailable.
    static Result<std::unique_ptr<LibraryProduct>> open();
    virtual ~LibraryProduct() = default;
    virtual const std::string& version() const = 0;
    /// MatmulOp for all outputs. Returns false, without enqueuing anything, if the library has no suitable
    /// algorithm.
    virtual bool run(const MatmulOp& op, Float16Kind dtype, cudaStream_t stream) = 0;
};

}  // namespace draftscope::kernels::cuda
