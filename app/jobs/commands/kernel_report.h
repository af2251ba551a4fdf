#pragma once

#include <algorithm>
#include <string>
#include <vector>

/// Settings and results of `draftscope kernels` and the Kernels panel. Plain data; includes neither kernels
/// nor the window.
namespace draftscope {

/// Sizes to measure.
struct KernelSettings {
    int vocab = 49152;       ///< V, rows of the head
    int hidden = 576;        ///< d, columns of the head
    std::vector<int> ranks;  ///< of the low-rank heads; empty = d / 8
    /// Rows of the gathered heads, by default SpecVocab's and MicroSpec's. Not empty.
    std::vector<int> gather = {2048, 3072};
    int k = 10;  ///< candidates of the top-k
    std::vector<int> rows = {1, 4, 8};
    std::vector<std::string> precisions = {"int8", "bf16"};
    int threads = 0;       ///< 0 = all cores
    double seconds = 0.2;  ///< spent on each op
    bool operator==(const KernelSettings&) const = default;
};

/// One measured op. Times are per call; bytes are the weights or rows that a call reads or writes.
struct KernelTime {
    std::string op;
    std::string precision;
    int rows = 0;  ///< M; 0 = the op has none
    int calls = 0;
    double median_us = 0;
    double best_us = 0;
    double bytes = 0;
    /// GB/s of scattered reads with this op's row length; 0 = the op reads one stream.
    double scattered_probe = 0;

    double gb_per_s() const { return bytes / (median_us * 1e3); }
};

struct KernelReport {
    KernelSettings settings;
    std::string isa;
    int threads = 0;
    double probe_before = 0, probe_after = 0;  ///< GB/s of reads
    std::vector<KernelTime> ops;
    std::vector<std::string> notes;  ///< what a size rules out, one line each

    double probe() const { return std::max(probe_before, probe_after); }
    /// Returns the op's bandwidth divided by that of the probe with the same access pattern.
    double share(const KernelTime& op) const {
        return op.gb_per_s() / (op.scattered_probe > 0 ? op.scattered_probe : probe());
    }
};

}  // namespace draftscope
