#pragma once

#include <thread>
#include <vector>

namespace draftscope {

/// Numbers of the CPUs that the system lets this process run on, rising (taskset, cgroups' cpusets); never
/// empty.
std::vector<int> usable_cpus();
inline int usable_cores() {
    return static_cast<int>(usable_cpus().size());
}
/// Keeps a thread on one CPU; false where the system does not allow it.
bool pin_thread(std::thread& thread, int cpu);

}  // namespace draftscope
