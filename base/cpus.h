#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/notes.h"

namespace draftscope {

/// What the control groups (versions 1 and 2) of this process leave it; absent = no limit.
struct ControlGroup {
    std::optional<double> cpus;                ///< quota of CPU time per time
    std::optional<std::uint64_t> free_memory;  ///< bytes up to the limit, with the page cache
};
/// Reads the limits of the process's group and of those above it. `root` is where /proc and /sys are.
ControlGroup read_control_group(const std::string& root = "");

/// Returns the numbers of the CPUs that this process may use (taskset, cgroup cpusets). Ascending, never
/// empty.
std::vector<int> usable_cpus();
inline int usable_cores() {
    return static_cast<int>(usable_cpus().size());
}
/// Returns the default number of threads: the usable CPUs, at most the control group's quota. The quota is
/// rounded down to 1 or more.
int default_threads();
/// Returns `wanted` threads; 0 = default_threads().
inline int threads_or_default(int wanted) {
    return wanted > 0 ? wanted : default_threads();
}
/// Says that a quota limits threads_or_default(wanted).
Notes thread_limit_notes(int wanted);
/// Pins a thread to one CPU. Returns false if the system does not allow it.
bool pin_thread(std::thread& thread, int cpu);

}  // namespace draftscope
