#include <cstdlib>

#include "base/enum_text.h"
#include "base/python_wheels.h"
#include "profiler/cupti/cupti_api.h"

namespace draftscope {

namespace {

// CUPTI's result codes, by number, because this file is also built without CUPTI's headers.
enum Code : int {
    multiple_before_13 = 12,
    not_compatible = 14,
    not_initialized = 15,
    hardware_busy = 26,
    not_supported = 27,
    virtual_device = 33,
    insufficient_privileges = 35,
    multiple_subscribers = 39,
    virtual_privileges = 40,
    confidential = 41,
    mining_device = 42,
    partitioned = 43,
    sli = 44,
    wsl = 45,
    unknown = 999,
};

constexpr const char* counter_remedy =
    "as administrator, add the line \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" to "
    "/etc/modprobe.d/nvidia-profiling.conf and reload the module; in a container, add --cap-add=SYS_ADMIN "
    "(or CAP_PERFMON since driver R565)";

}  // namespace

std::string_view to_text(CuptiState state) {
    constexpr std::string_view texts[] = {"ready",
                                          "not built in",
                                          "no library",
                                          "version too old",
                                          "no driver",
                                          "held by another tool",
                                          "no permission",
                                          "not supported on this device",
                                          "ended by an error",
                                          "failed"};
    return enum_text(texts, state);
}

CuptiProbe cupti_refusal(int code, const std::string& message, const std::string& holder,
                         const std::string& what) {
    CuptiProbe out;
    out.holder = holder;
    out.text = what + ": " + message + " (" + std::to_string(code) + ")";
    out.state = CuptiState::failed;
    switch (code) {
        case not_initialized:
        case unknown:
            // Without a driver, CUPTI returns 999 instead of the documented 15.
            out.state = CuptiState::no_driver;
            out.text = "no usable NVIDIA driver (" + out.text + ")";
            out.remedy = "load the nvidia kernel module, or pass the GPU into this container";
            break;
        case multiple_subscribers:
        case multiple_before_13:
            out.state = CuptiState::held;
            out.text = "held by " + (holder.empty() ? std::string("another tool in this process") : holder);
            out.remedy =
                "start without nsys, ncu, cuda-gdb or another CUPTI client (the PyTorch profiler is one)";
            break;
        case insufficient_privileges:
        case virtual_privileges:
            out.state = CuptiState::no_permission;
            out.remedy = counter_remedy;
            break;
        case not_compatible:
            out.state = CuptiState::too_old;
            out.remedy = "use the CUPTI that belongs to the driver, or update the driver";
            break;
        case hardware_busy:
            out.text = "the counter hardware is in use (" + out.text + ")";
            out.remedy = "end the other profiler on this GPU";
            break;
        case not_supported:
        case virtual_device:
        case confidential:
        case mining_device:
        case partitioned:
        case sli:
        case wsl:
            out.state = CuptiState::unsupported;
            out.remedy = "use a whole, directly attached GPU; tier T0 works everywhere";
            break;
        default:
            out.remedy = "tier T0 works without CUPTI";
    }
    return out;
}

std::vector<std::string> cupti_candidates(const std::string& wanted) {
    if (!wanted.empty()) return {wanted};
    if (const char* set = std::getenv("DRAFTSCOPE_CUPTI"); set != nullptr && *set != '\0') return {set};
    std::vector<std::string> names = {"libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                      "/usr/local/cuda/lib/libcupti.so.13"};
    const std::vector<std::string> wheels = wheel_libraries("libcupti.so.13");
    names.insert(names.end(), wheels.begin(), wheels.end());
    names.insert(names.end(), {"libcupti.so.12", "libcupti.so"});
    return names;
}

}  // namespace draftscope
