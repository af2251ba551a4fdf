#include "app/jobs/machine/capabilities.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/backend.h"

namespace draftscope {
namespace {

/// Returns the availability of --backend cuda. A build with the back end contains the CUDA runtime, so
/// libraries on the system are irrelevant.
Capability cuda_backend() {
    const kernels::DeviceProbe found = kernels::probe_cuda();
    if (!found.available) {
        // "reason; what to do"
        const std::size_t end = found.why_not.find("; ");
        const std::string remedy = end == std::string::npos ? "" : found.why_not.substr(end + 2);
        return {"CUDA", false, "none", found.why_not.substr(0, end), remedy};
    }
    constexpr double mib = 1 << 20, gib = 1 << 30;
    const kernels::DeviceInfo& gpu = found.info;
    return {"CUDA", true, gpu.architecture,
            fmt::format("{}, {}, {} multiprocessors, {:.0f} GiB, L2 {:.0f} MiB ({:.0f} may persist), driver "
                        "for CUDA {}, runtime {}",
                        gpu.name, gpu.architecture, gpu.processors,
                        static_cast<double>(gpu.memory_bytes) / gib, static_cast<double>(gpu.l2_bytes) / mib,
                        static_cast<double>(gpu.persisting_l2_bytes) / mib, gpu.driver, gpu.runtime),
            ""};
}

}  // namespace

Machine describe_capabilities(bool probe_cupti) {
    Machine machine = describe_machine(probe_cupti);
    machine.isa = std::string(kernels::to_text(kernels::best_isa()));
    // Insert after the driver, which is the first capability.
    machine.capabilities.insert(machine.capabilities.begin() + 1, cuda_backend());
    return machine;
}

}  // namespace draftscope
