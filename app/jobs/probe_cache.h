#pragma once

#include <map>
#include <string>

namespace draftscope {

/// Read bandwidth by threads, GB/s.
using ProbedBandwidth = std::map<int, double>;

/// What `doctor` measured is kept in the user's cache folder (bandwidth.json), so that runs can say how much
/// of it a phase reaches. Written for one CPU name: another one's numbers are not used.
void save_probe(const std::string& cpu_name, const ProbedBandwidth& measured);
/// 0 when it was not measured on this CPU with this many threads.
double saved_probe(const std::string& cpu_name, int threads);

}  // namespace draftscope
