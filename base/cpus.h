#pragma once

#include <thread>
#include <vector>

namespace draftscope {

/// Returns the numbers of the CPUs that this process may use (taskset, cgroup cpusets). Ascending, never
/// empty.
std::vector<int> usable_cpus();
inline int usable_cores() {
    return static_cast<int>(usable_cpus().size());
}
/// Pins a thread to one CPU. Returns false if the system does not allow it.
bool pin_thread(std::thread& thread, int cpu);

}  // namespace draftscope
