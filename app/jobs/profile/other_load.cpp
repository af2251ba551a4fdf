#include "app/jobs/profile/other_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/clock.h"

namespace draftscope {
namespace {

double cpu_seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

/// The first line of /proc/stat holds ticks: user, nice, system, idle, iowait, irq, softirq, steal.
std::optional<OtherLoad::Counters> OtherLoad::read() {
    std::ifstream file("/proc/stat");
    std::string label;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
    file >> label >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
    rusage own{};
    const long ticks_per_s = sysconf(_SC_CLK_TCK);
    if (!file || ticks_per_s <= 0 || getrusage(RUSAGE_SELF, &own) != 0) return std::nullopt;
    const double busy = (user + nice + system + irq + softirq + steal) / static_cast<double>(ticks_per_s);
    return Counters{monotonic_ns(), busy - cpu_seconds(own.ru_utime) - cpu_seconds(own.ru_stime)};
}

double OtherLoad::cpus() const {
    const std::optional<Counters> now = read();
    if (!start_ || !now || now->time <= start_->time) return 0;
    return std::max(0.0, now->others - start_->others) / seconds(now->time - start_->time);
}

}  // namespace draftscope
