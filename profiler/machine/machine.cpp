#include "profiler/machine/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/fields.h"
#include "profiler/cupti/gpu_session.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

namespace {

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// Returns the value of the first line "key<anything>separator value" of a file; "" if there is none.
std::string find_value(const char* path, std::string_view key, char separator) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        if (line.rfind(key, 0) != 0) continue;
        const std::size_t at = line.find(separator);
        if (at == std::string::npos) continue;
        std::string value = line.substr(at + 1);
        const auto drop = [](char c) { return c == ' ' || c == '\t' || c == '"'; };
        while (!value.empty() && drop(value.front())) value.erase(value.begin());
        while (!value.empty() && drop(value.back())) value.pop_back();
        return value;
    }
    return {};
}

// Returns the name of the first library that loads; "" if none does. Calls nothing in it, because starting a
// GPU is slow.
std::string first_library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (handle == nullptr) continue;
        dlclose(handle);
        return name;
    }
    return {};
}

Capability nvidia_driver() {
    Capability out{"NVIDIA driver", false, "none", "not found",
                   "install the NVIDIA driver for GPU runs; CPU runs need none"};
    const std::string version = first_line("/proc/driver/nvidia/version");
    const std::string library = first_library({"libcuda.so.1"});
    if (library.empty()) return out;
    out.available = !version.empty();
    out.brief = out.available ? "running" : "not running";
    out.state = out.available ? version : "libcuda.so.1 loads, but no kernel driver is running";
    out.remedy = out.available ? "" : "load the nvidia kernel module or pass the GPU into this container";
    return out;
}

Capability to_capability(const char* name, const CuptiProbe& probe) {
    const bool ready = probe.state == CuptiState::ready;
    const std::string brief(to_text(probe.state));
    return {name, ready, brief, ready ? probe.text : brief + ": " + probe.text, probe.remedy};
}

Capability cupti(bool try_subscribe) {
    if (gpu_session().tier() != Tier::t0) return to_capability("CUPTI", gpu_session().state());
    const auto api = make_cupti_api();
    CuptiProbe probe = api->probe();
    if (try_subscribe && probe.state == CuptiState::ready) {
        // A brief subscription tells which tool holds CUPTI. CUPTI keeps the listener's clock and buffers, so
        // it must outlive the process's last CUDA call.
        static CuptiListener listener;
        probe = api->subscribe(listener);
        api->unsubscribe();
    }
    return to_capability("CUPTI", probe);
}

Capability nvtx() {
    const std::string name = nvtx_listener_name();
    const bool listening = name.rfind("none", 0) != 0;
    return {"NVTX listener", listening, listening ? "yes" : "none", name,
            listening ? "" : "start under nsys, or build with the CUDA Toolkit's NVTX headers"};
}

Capability thread_pinning() {
    const int cpus = usable_cores();
    if (cpus < 2)
        return {"thread pinning", false, "no", "this process may use only one CPU",
                "runs have one thread; give the process more CPUs (taskset, cpuset)"};
    return {"thread pinning", true, "off",
            fmt::format("{} usable CPUs; with --pin, each worker stays on one", cpus), ""};
}

}  // namespace

Machine describe_machine(bool subscribe_cupti) {
    Machine out;
    out.cpu_name = find_value("/proc/cpuinfo", "model name", ':');
    if (out.cpu_name.empty()) out.cpu_name = "unknown CPU";
    out.cores = usable_cores();
    struct sysinfo memory {};
    if (sysinfo(&memory) == 0)
        out.memory_bytes = static_cast<std::uint64_t>(memory.totalram) * memory.mem_unit;
    out.os = find_value("/etc/os-release", "PRETTY_NAME", '=');
    utsname name{};
    if (uname(&name) == 0) {
        out.kernel = name.release;
        if (out.os.empty()) out.os = name.sysname;
    }
    out.tsc_invariant = TickScale::calibrate().uses_tsc();
    out.capabilities = {nvidia_driver(), cupti(subscribe_cupti), nvtx(), thread_pinning()};
    return out;
}

std::string to_json(const Machine& machine) {
    using Ordered = nlohmann::ordered_json;
    Ordered out = write_fields<Ordered>(
        join(field("cpu", &Machine::cpu_name), DS_FIELDS(Machine, cores, isa, memory_bytes, os, kernel),
             null_if_none(DS_FIELDS(Machine, read_gb_per_s, cached_read_gb_per_s, scattered_read_gb_per_s)),
             DS_FIELDS(Machine, tsc_invariant)),
        machine);
    out["pid"] = getpid();
    out["capabilities"] = Ordered::array();
    for (const Capability& one : machine.capabilities)
        out["capabilities"].push_back(
            write_fields<Ordered>(DS_FIELDS(Capability, name, available, state, remedy), one));
    // Names from the system may contain invalid UTF-8.
    return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace draftscope
