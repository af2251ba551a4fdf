#include "engine/weights/memory_check.h"

#include <fstream>
#include <string>

#include "base/numel.h"

namespace draftscope {

std::uint64_t packed_bytes(const ModelFile& file, kernels::Precision precision) {
    double elements = 0;
    for (const std::string& name : file.weights->names()) {
        // Embedding rows are read from the file; the tensor is packed only as a tied LM head.
        if (name == "token_embd.weight" && !file.config.tied_head) continue;
        const TensorInfo& info = *file.weights->find(name);
        elements += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
    }
    return static_cast<std::uint64_t>(elements * kernels::bytes_per_weight(precision));
}

std::optional<std::uint64_t> available_memory() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::uint64_t value = 0;
    while (file >> key >> value) {
        if (key == "MemAvailable:") return value * 1024;
        std::getline(file, unit);
    }
    return std::nullopt;
}

Status check_memory(const ModelFile& file, kernels::Precision precision,
                    std::optional<std::uint64_t> available, int positions) {
    const std::uint64_t weights = packed_bytes(file, precision);
    // cos and sin of half a head
    const std::uint64_t angles = row_offset(positions, file.config.head_dim) * sizeof(float);
    if (!available || weights + angles <= *available) return {};
    constexpr double gib = 1024.0 * 1024.0 * 1024.0;
    if (weights <= *available)
        return failed(
            "{}: the angles of {} positions need {:.1f} GiB, but next to the weights {:.1f} GiB of memory "
            "are available; choose fewer with --context",
            file.weights->path(), positions, static_cast<double>(angles) / gib,
            static_cast<double>(*available - weights) / gib);
    return failed(
        "{}: the weights need {:.1f} GiB as {}, but {:.1f} GiB of memory are available; choose a smaller "
        "--precision "
        "or a smaller target",
        file.weights->path(), static_cast<double>(weights) / gib, kernels::to_text(precision),
        static_cast<double>(*available) / gib);
}

}  // namespace draftscope
