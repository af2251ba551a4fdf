#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace draftscope {

/// What the control groups (versions 1 and 2) of this process leave it; absent = no limit.
struct ControlGroup {
    std::optional<double> cpus;                ///< quota of CPU time per time
    std::optional<std::uint64_t> free_memory;  ///< bytes up to the limit, with the page cache
};
/// Reads the limits of the process's group and of those above it. `root` is where /proc and /sys are.
ControlGroup read_control_group(const std::string& root = "");

}  // namespace draftscope
