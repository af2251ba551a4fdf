#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

#include "capture/rows.h"

namespace draftscope {

/// What `draftscope doctor` measured this machine to read from memory on as many threads as the run uses,
/// GB/s; absent when it was never asked. From the run's machine_json, whose writer puts the number after the
/// key.
inline std::optional<double> probed_gb_per_s(const RunRow& run) {
    constexpr std::string_view key = "\"read_gb_per_s\":";
    const std::size_t at = run.machine_json.find(key);
    if (at == std::string::npos) return std::nullopt;
    const double value = std::strtod(run.machine_json.c_str() + at + key.size(), nullptr);
    return value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace draftscope
