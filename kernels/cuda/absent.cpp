#include "kernels/device_bench.h"

namespace draftscope::kernels {

DeviceProbe probe_cuda() {
    return {false, "this build has no CUDA back end; configure with -DDRAFTSCOPE_CUDA=ON", {}};
}

Result<std::unique_ptr<Backend>> open_cuda(const CudaOptions&) {
    return bad_input("CUDA is not available: {}", probe_cuda().why_not);
}

Result<DeviceBenchReport> bench_cuda(const DeviceBenchOptions&) {
    return bad_input("CUDA is not available: {}", probe_cuda().why_not);
}

}  // namespace draftscope::kernels
