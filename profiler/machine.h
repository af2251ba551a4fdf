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
    double read_gb_per_s = 0;            ///< from memory, measured, 0 = not probed
    double cached_read_gb_per_s = 0;     ///< the same from the last cache
    double scattered_read_gb_per_s = 0;  ///< from memory, rows of scattered_probe_row_bytes here and there
    bool tsc_invariant = false;
    std::vector<Capability> capabilities;
};
/// Fast facts only (no bandwidth probe). `ask_cupti` also takes CUPTI's one subscription and gives it back,
/// to learn who holds it: not in a process that traces.
Machine describe_machine(bool ask_cupti = false);
/// GB/s of reads: `megabytes` of memory, again and again, on `threads` threads with the loop of the matmul
/// kernels; best of several passes, under a second. What fits a cache is read from it, so that the figure
/// belongs to that size.
double probe_read_bandwidth(int threads, int megabytes);
/// The same of whole rows of `row_bytes` (rounded up to lines) that lie scattered, one in sixteen, in rising
/// order: what an indexed head can reach. Other rows in every pass; the median of several.
double probe_scattered_bandwidth(int threads, int megabytes, int row_bytes);
/// GB/s of the fastest pass and of the middle one.
struct ProbedRate {
    double best = 0, median = 0;
};
/// The two probes above. Before each pass `between` megabytes of other memory are read, as the target's pass
/// is before a head: what is left of the last pass in caches then is what a decode loop finds there.
ProbedRate probe_stream(int threads, int megabytes, int between);
ProbedRate probe_scattered(int threads, int megabytes, int row_bytes, int between);
/// A row of the demo model's int8 head with its scales.
inline constexpr int scattered_probe_row_bytes = 640;
/// A size that caches hold little of: four times the last one, within an eighth of the memory.
int memory_probe_megabytes();
/// A size for one thread that lies in a shared cache, past the thread's own.
inline constexpr int cached_probe_megabytes = 8;
std::string to_json(const Machine& machine);

}  // namespace draftscope
