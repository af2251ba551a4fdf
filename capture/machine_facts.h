#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "capture/rows.h"

namespace draftscope {

namespace machine_facts {
inline std::optional<double> number_after(const std::string& json, std::string_view key) {
    const std::size_t at = json.find(key);
    if (at == std::string::npos) return std::nullopt;
    const double value = std::strtod(json.c_str() + at + key.size(), nullptr);
    return value > 0 ? std::optional(value) : std::nullopt;
}
}  // namespace machine_facts

/// What `draftscope doctor` measured this machine to read from memory on as many threads as the run uses,
/// GB/s; absent when it was never asked. From the run's machine_json, whose writer puts the number after the
/// key.
inline std::optional<double> probed_gb_per_s(const RunRow& run) {
    return machine_facts::number_after(run.machine_json, "\"read_gb_per_s\":");
}
/// The same of rows that lie scattered.
inline std::optional<double> probed_scattered_gb_per_s(const RunRow& run) {
    return machine_facts::number_after(run.machine_json, "\"scattered_read_gb_per_s\":");
}

}  // namespace draftscope
