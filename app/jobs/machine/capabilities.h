#pragma once

#include <map>
#include <string>

#include "profiler/machine/machine.h"

namespace draftscope {

/// Describes this machine and the capabilities of this build: describe_machine(), the kernels' instruction
/// set and the CUDA back end. Captures, the window and doctor show the result.
Machine describe_capabilities(bool probe_cupti = false);

/// Measured read bandwidth in GB/s; 0 = not measured.
struct ReadBandwidth {
    double stream = 0;
    double scattered = 0;  ///< rows of scattered_probe_row_bytes at random positions
    bool operator==(const ReadBandwidth&) const = default;
};
/// Bandwidth by number of threads.
using ProbedBandwidth = std::map<int, ReadBandwidth>;

/// Saves doctor's measurements in the user's cache folder (bandwidth.json) for one CPU name. Runs report each
/// phase's bandwidth relative to them.
void save_probe(const std::string& cpu_name, const ProbedBandwidth& measured);
/// Returns zeros if nothing was measured on this CPU with this number of threads.
ReadBandwidth load_probe(const std::string& cpu_name, int threads);

}  // namespace draftscope
