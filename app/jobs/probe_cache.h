#pragma once

#include <map>
#include <string>

namespace draftscope {

/// GB/s; 0 = not measured.
struct ProbedReads {
    double stream = 0;
    double scattered = 0;  ///< rows of scattered_probe_row_bytes here and there
    bool operator==(const ProbedReads&) const = default;
};
/// By threads.
using ProbedBandwidth = std::map<int, ProbedReads>;

/// What `doctor` measured is kept in the user's cache folder (bandwidth.json), so that runs can say how much
/// of it a phase reaches. Written for one CPU name: another one's numbers are not used.
void save_probe(const std::string& cpu_name, const ProbedBandwidth& measured);
/// Zeros when it was not measured on this CPU with this many threads.
ProbedReads saved_probe(const std::string& cpu_name, int threads);

}  // namespace draftscope
