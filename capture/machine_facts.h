#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "capture/rows.h"

namespace draftscope {

namespace machine_facts {
/// Returns the number after a key in a JSON text; absent if the key is missing.
inline std::optional<double> number_after(const std::string& json, std::string_view key) {
    const std::size_t at = json.find(key);
    if (at == std::string::npos) return std::nullopt;
    const double value = std::strtod(json.c_str() + at + key.size(), nullptr);
    return value > 0 ? std::optional(value) : std::nullopt;
}
}  // namespace machine_facts

/// Returns the memory read bandwidth in GB/s that `draftscope doctor` measured with the run's thread count.
/// Absent if it was not measured. The value comes from machine_json, which stores the number after the key.
inline std::optional<double> probed_gb_per_s(const RunRow& run) {
    return machine_facts::number_after(run.machine_json, "\"read_gb_per_s\":");
}
/// As probed_gb_per_s(), for scattered rows.
inline std::optional<double> probed_scattered_gb_per_s(const RunRow& run) {
    return machine_facts::number_after(run.machine_json, "\"scattered_read_gb_per_s\":");
}

}  // namespace draftscope
