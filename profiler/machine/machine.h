#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Whether a tool or device is available, with texts for the user.
struct Capability {
    std::string name;  ///< "NVIDIA driver", "CUPTI", "NVTX listener", ...
    bool available = false;
    std::string brief;   ///< one or two words for the window's status line: "ready", "no driver"
    std::string state;   ///< finding in one line
    std::string remedy;  ///< what to do if it is missing; "" = nothing
};

/// Description and measuring abilities of this machine. Stored with every run as machine_json.
struct Machine {
    std::string cpu_name;
    int cores = 0;
    std::string isa;  ///< best kernel instruction set; set by the caller
    std::uint64_t memory_bytes = 0;
    std::string os;
    std::string kernel;
    double read_gb_per_s = 0;         ///< memory read bandwidth; 0 = not probed
    double cached_read_gb_per_s = 0;  ///< read bandwidth of the last-level cache
    /// Memory read bandwidth for scattered rows of scattered_probe_row_bytes.
    double scattered_read_gb_per_s = 0;
    bool tsc_invariant = false;
    std::vector<Capability> capabilities;
};
/// Returns the facts that are fast to get (no bandwidth probe). `subscribe_cupti` briefly takes CUPTI's only
/// subscription to find out which tool holds it. Don't set it in a process that traces.
Machine describe_machine(bool subscribe_cupti = false);
/// Returns the read bandwidth in GB/s: `threads` threads read `megabytes` of memory repeatedly, with the loop
/// of the matmul kernels. Takes the best of several passes, under a second. Data that fits a cache is read
/// from it, so the result is that of the size.
double probe_read_bandwidth(int threads, int megabytes);
/// As above, for scattered rows of `row_bytes` (rounded up to cache lines), one in sixteen, in ascending
/// order. This is what an indexed head can reach. Every pass reads other rows; returns the median of several.
double probe_scattered_bandwidth(int threads, int megabytes, int row_bytes);
/// GB/s of the fastest and of the median pass.
struct ProbedRate {
    double best = 0, median = 0;
};
/// The two probes above. Before each pass they read `between` megabytes of other memory, as the target's
/// pass does before a head. The caches then hold what they hold in a decode loop.
ProbedRate probe_stream(int threads, int megabytes, int between);
ProbedRate probe_scattered(int threads, int megabytes, int row_bytes, int between);
/// A row of the demo model's int8 head including its scales.
inline constexpr int scattered_probe_row_bytes = 640;
/// Returns a size that exceeds the caches: four times the last-level one, at most an eighth of the memory.
int memory_probe_megabytes();
/// A size for one thread that fits a shared cache but not the thread's private one.
inline constexpr int cached_probe_megabytes = 8;
std::string to_json(const Machine& machine);

}  // namespace draftscope
