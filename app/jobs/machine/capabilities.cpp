#include "app/jobs/machine/capabilities.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/user_folders.h"
#include "kernels/backend.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

fs::path cache_file() {
    const fs::path cache = cache_folder();
    return cache.empty() ? fs::path() : cache / "bandwidth.json";
}

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

void save_probe(const std::string& cpu_name, const ProbedBandwidth& measured) {
    const fs::path path = cache_file();
    if (path.empty()) return;
    nlohmann::json stream = nlohmann::json::object(), scattered = stream;
    for (const auto& [count, reads] : measured) {
        stream[std::to_string(count)] = reads.stream;
        scattered[std::to_string(count)] = reads.scattered;
    }
    const nlohmann::json document = {
        {"cpu", cpu_name}, {"read_gb_per_s", stream}, {"scattered_read_gb_per_s", scattered}};
    if (!replace_file(path, document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace)))
        log_warning("{}: the bandwidth probe can't be saved", path.string());
}

ReadBandwidth load_probe(const std::string& cpu_name, int threads) {
    std::ifstream file(cache_file());
    if (!file) return {};
    const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
    if (!document.is_object() || document.value("cpu", nlohmann::json()) != cpu_name) return {};
    const auto number = [&](const char* key) {
        const auto table = document.find(key);
        if (table == document.end() || !table->is_object()) return 0.0;
        const auto found = table->find(std::to_string(threads));
        return found != table->end() && found->is_number() ? found->get<double>() : 0.0;
    };
    return {number("read_gb_per_s"), number("scattered_read_gb_per_s")};
}

}  // namespace draftscope
