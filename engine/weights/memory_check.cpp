#include "engine/weights/memory_check.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/cpus.h"
#include "base/numel.h"

namespace draftscope {

namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

template <typename OnDemand>
double packed_bytes(const WeightSource& weights, kernels::Precision precision, OnDemand is_read_on_demand) {
    double elements = 0;
    for (const std::string& name : weights.names()) {
        if (is_read_on_demand(name)) continue;
        const TensorInfo& info = *weights.find(name);
        elements += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
    }
    return elements * kernels::bytes_per_weight(precision);
}

}  // namespace

std::uint64_t packed_bytes(const ModelFile& file, kernels::Precision precision) {
    // Embedding rows are read from the file; the tensor is packed only as a tied LM head.
    return static_cast<std::uint64_t>(packed_bytes(*file.weights, precision, [&](const std::string& name) {
        return name == "token_embd.weight" && !file.config.tied_head;
    }));
}

Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision) {
    // Embedding rows are read from the file on demand, so they take no memory.
    const double bytes = packed_bytes(weights, precision, [](const std::string& name) {
        return name.find("embed_tokens") != std::string::npos || name == "token_embd.weight";
    });
    const auto available = available_memory();
    if (!available || bytes <= static_cast<double>(*available)) return {};
    return failed("{}: the drafter needs {:.1f} GiB as {}, but {}; choose a smaller --precision",
                  weights.path(), bytes / gib, kernels::to_text(precision), available_text(*available));
}

std::optional<std::uint64_t> available_memory(const std::string& root) {
    std::optional<std::uint64_t> available = read_control_group(root).free_memory;
    std::ifstream file(root + "/proc/meminfo");
    std::string key, unit;
    std::uint64_t value = 0;
    while (file >> key >> value) {
        if (key == "MemAvailable:") available = std::min(available.value_or(value * 1024), value * 1024);
        std::getline(file, unit);
    }
    return available;
}

std::string available_text(std::uint64_t available) {
    // Both change all the time; the memory of a device is another.
    const std::uint64_t in_group = read_control_group().free_memory.value_or(~std::uint64_t{0});
    const bool limited = in_group / 16 * 15 <= available && available / 16 * 15 <= in_group;
    return fmt::format("{:.1f} GiB of memory are available{}", static_cast<double>(available) / gib,
                       limited ? " within the limit of the process's control group" : "");
}

Status check_memory(const ModelFile& file, kernels::Precision precision,
                    std::optional<std::uint64_t> available, int positions) {
    const std::uint64_t weights = packed_bytes(file, precision);
    // cos and sin of half a head
    const std::uint64_t angles = numel(positions, file.config.head_dim) * sizeof(float);
    if (!available || weights + angles <= *available) return {};
    if (weights <= *available)
        return failed(
            "{}: the angles of {} positions need {:.1f} GiB, but next to the weights {:.1f} GiB of memory "
            "are available; choose fewer with --context",
            file.weights->path(), positions, static_cast<double>(angles) / gib,
            static_cast<double>(*available - weights) / gib);
    return failed(
        "{}: the weights need {:.1f} GiB as {}, but {}; choose a smaller --precision or a smaller target",
        file.weights->path(), static_cast<double>(weights) / gib, kernels::to_text(precision),
        available_text(*available));
}

}  // namespace draftscope
