#pragma once

#include <thread>
#include <vector>

#include "base/notes.h"

namespace draftscope {

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
