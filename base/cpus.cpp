#include "base/cpus.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Names of the files of a version ("" = none), and the keys of the page cache in memory.stat.
struct Files {
    const char *quota, *period, *usage, *limits[2], *cached[2];
};
constexpr Files version_1 = {"cpu.cfs_quota_us",
                             "cpu.cfs_period_us",
                             "memory.usage_in_bytes",
                             {"memory.limit_in_bytes", ""},
                             {"total_inactive_file", "total_active_file"}};
constexpr Files version_2 = {
    "cpu.max", "", "memory.current", {"memory.max", "memory.high"}, {"inactive_file", "active_file"}};

/// Adds the numbers of a file to `out`; "max" and -1 end them.
void add_numbers(const fs::path& path, std::vector<double>& out) {
    std::ifstream file(path);
    for (double value = 0; file >> value && value >= 0;) out.push_back(value);
}

template <typename T>
void limit(std::optional<T>& value, T by) {
    value = std::min(value.value_or(by), by);
}

void read_limits(const fs::path& group, const Files& files, ControlGroup& out) {
    std::vector<double> time, used, limits;
    add_numbers(group / files.quota, time);
    add_numbers(group / files.period, time);
    if (time.size() == 2 && time[0] > 0 && time[1] > 0) limit(out.cpus, time[0] / time[1]);
    add_numbers(group / files.usage, used);
    for (const char* name : files.limits) add_numbers(group / name, limits);
    if (used.empty()) return;
    std::ifstream stat(group / "memory.stat");
    std::string key;
    for (double value = 0; stat >> key >> value;)
        if (key == files.cached[0] || key == files.cached[1]) used[0] -= value;
    for (const double bytes : limits)
        limit(out.free_memory, static_cast<std::uint64_t>(std::max(0.0, bytes - std::max(used[0], 0.0))));
}

}  // namespace

ControlGroup read_control_group(const std::string& root) {
    ControlGroup out;
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // "4:memory:/group"; version 2 is "0::/group"
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const fs::path mounted = fs::path(root + "/sys/fs/cgroup") / controllers;
        // In a container, the mounted root may be the group itself.
        for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
             group = group.parent_path()) {
            read_limits(mounted / group, controllers.empty() ? version_2 : version_1, out);
            if (group.empty()) break;
        }
    }
    return out;
}

namespace {

/// Returns the CPUs that the control group allows; unlimited if it has no quota.
double default_quota() {
    static const double quota = read_control_group().cpus.value_or(std::numeric_limits<double>::infinity());
    return quota;
}

}  // namespace

std::vector<int> usable_cpus() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0) {
        std::vector<int> cpus;
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
        return cpus;
    }
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
    if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    return pthread_setaffinity_np(thread.native_handle(), sizeof(only), &only) == 0;
}

}  // namespace draftscope
