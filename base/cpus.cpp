#include "base/cpus.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "base/control_group.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace draftscope {
namespace {

/// Returns the CPUs that the control group allows; unlimited if it has no quota.
double default_quota() {
    static const double quota = read_control_group().cpus.value_or(std::numeric_limits<double>::infinity());
    return quota;
}

}  // namespace

std::vector<int> usable_cpus() {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0) {
        std::vector<int> cpus;
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
        return cpus;
    }
#endif
    std::vector<int> all(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

Notes thread_limit_notes(int wanted) {
    Notes notes;
    if (wanted == 0 && default_quota() < usable_cores())
        add_note(notes,
                 "the process's control group allows the time of {:.3g} of its {} CPUs, so the default of "
                 "--threads is {}",
                 default_quota(), usable_cores(), default_threads());
    return notes;
}

int default_threads() {
    return std::max(1, static_cast<int>(std::min<double>(default_quota(), usable_cores())));
}

bool pin_thread(std::thread& thread, int cpu) {
#if defined(__linux__)
    if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    return pthread_setaffinity_np(thread.native_handle(), sizeof(only), &only) == 0;
#else
    (void)thread;
    (void)cpu;
    return false;
#endif
}

}  // namespace draftscope
