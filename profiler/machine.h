#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

struct Capability {
    std::string name;  ///< "NVIDIA driver", "CUPTI", "NVTX listener", "counters", ...
    bool available = false;
    std::string brief;   ///< a word or two for the window's bottom line: "ready", "no driver"
    std::string state;   ///< what was found, one line
    std::string remedy;  ///< what to do when it is missing; "" = nothing
};

/// What this machine is and can measure. Stored with every run as machine_json.
struct Machine {
    std::string cpu_name;
    int cores = 0;
    std::string isa;  ///< best kernel path, filled by the caller that knows kernels
    std::uint64_t memory_bytes = 0;
    std::string os;
    std::string kernel;
    double read_gb_per_s = 0;  ///< measured, 0 = not probed
    bool tsc_invariant = false;
    std::vector<Capability> capabilities;
};
/// Fast facts only (no bandwidth probe). `ask_cupti` also takes CUPTI's one subscription and gives it back,
/// to learn who holds it: not in a process that traces.
Machine describe_machine(bool ask_cupti = false);
/// Reads `megabytes` of memory repeatedly on `threads` threads; best of several passes, about 0.5 s in all.
double probe_read_bandwidth(int threads, int megabytes = 256);
std::string to_json(const Machine& machine);

}  // namespace draftscope
