#include "base/clock.h"

#include <time.h>

#include <cstdio>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace draftscope {
namespace {

TimeNs read_clock(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<TimeNs>(now.tv_sec) * ns_per_s + now.tv_nsec;
}

bool tsc_is_invariant() {
#if defined(__x86_64__)
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::string line;
    while (std::getline(cpuinfo, line)) {
        if (line.rfind("flags", 0) != 0) continue;
        return line.find(" constant_tsc") != std::string::npos &&
               line.find(" nonstop_tsc") != std::string::npos;
    }
#endif
    return false;
}

const bool use_tsc = tsc_is_invariant();

}  // namespace

TimeNs monotonic_ns() {
    return read_clock(CLOCK_MONOTONIC);
}

TimeNs utc_ns() {
    return read_clock(CLOCK_REALTIME);
}

UtcText utc_text(TimeNs utc) {
    const time_t whole = static_cast<time_t>(utc / ns_per_s);
    tm parts{};
    gmtime_r(&whole, &parts);
    UtcText out{};
    strftime(out.text, sizeof out.text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return out;
}

std::uint64_t ticks_now() {
#if defined(__x86_64__)
    if (use_tsc) return __rdtsc();
#endif
    return static_cast<std::uint64_t>(monotonic_ns());
}

const TickScale& TickScale::calibrate() {
    static const TickScale scale = [] {
        TickScale made;
        made.uses_tsc_ = use_tsc;
        if (!use_tsc) return made;
        const TimeNs start_ns = monotonic_ns();
        const std::uint64_t start_ticks = ticks_now();
        TimeNs now = start_ns;
        while (now - start_ns < 10 * ns_per_ms) now = monotonic_ns();
        const std::uint64_t end_ticks = ticks_now();
        made.base_ns_ = now;
        made.base_ticks_ = end_ticks;
        made.ns_per_tick_ =
            static_cast<double>(now - start_ns) / static_cast<double>(end_ticks - start_ticks);
        return made;
    }();
    return scale;
}

TimeNs TickScale::to_monotonic_ns(std::uint64_t ticks) const {
    if (!uses_tsc_) return static_cast<TimeNs>(ticks);
    const auto delta = static_cast<std::int64_t>(ticks - base_ticks_);
    return base_ns_ + static_cast<TimeNs>(static_cast<double>(delta) * ns_per_tick_);
}

}  // namespace draftscope
