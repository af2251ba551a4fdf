#include "engine/weights/memory_check.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/cpus.h"
#include "base/numel.h"

namespace draftscope {

namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

/// `precision_of` gives a tensor's precision, nullopt for one whose rows are read from the file on demand.
template <typename PrecisionOf>
double sum_packed_bytes(const WeightSource& weights, PrecisionOf precision_of) {
    double bytes = 0;
    for (const std::string& name : weights.names()) {
        const TensorInfo& info = *weights.find(name);
        if (const std::optional<kernels::Precision> precision = precision_of(info))
            bytes += static_cast<double>(info.rows()) * static_cast<double>(info.cols()) *
                     kernels::bytes_per_weight(*precision);
    }
    return bytes;
}

}  // namespace

std::uint64_t packed_bytes(const ModelFile& file, kernels::Precision precision) {
    // The embedding is packed only as a tied LM head.
    const auto precision_of = [&](const TensorInfo& tensor) -> std::optional<kernels::Precision> {
        if (tensor.name == "token_embd.weight" && !file.config.tied_head) return std::nullopt;
        return file.packed_precision(precision, tensor);
    };
    return static_cast<std::uint64_t>(sum_packed_bytes(*file.weights, precision_of));
}

Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision) {
    const auto precision_of = [&](const TensorInfo& tensor) -> std::optional<kernels::Precision> {
        const bool embedding =
            tensor.name.find("embed_tokens") != std::string::npos || tensor.name == "token_embd.weight";
        return embedding ? std::nullopt : std::optional(precision);
    };
    const double bytes = sum_packed_bytes(weights, precision_of);
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

Status check_draft_memory(const ModelFile& file, kernels::Precision precision, std::uint64_t target_bytes,
                          std::optional<std::uint64_t> available, bool on_host) {
    const std::uint64_t needed = packed_bytes(file, precision);
    if (!available || needed <= *available) return {};
    return failed(
        "draft-model:{}: the weights need {:.1f} GiB as {}, but next to the target's {:.1f} GiB {}; choose a "
        "smaller draft model{}",
        file.weights->path(), static_cast<double>(needed) / gib, kernels::to_text(precision),
        static_cast<double>(target_bytes) / gib,
        on_host ? available_text(*available)
                : fmt::format("{:.1f} GiB are left", static_cast<double>(*available) / gib),
        on_host ? " or precision=int4" : "");
}

}  // namespace draftscope
