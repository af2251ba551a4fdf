#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace draftscope::kernels {

/// Benchmark of the ops of draft heads on a GPU (reference/performance.md, sections 8 and 10). Inputs are
/// random; calls run in one graph, and events measure device time.
struct DeviceMeasured;
struct DeviceBenchOptions {
    int vocab = 128256;
    int hidden = 4096;
    std::vector<int> rank = {512};  ///< of the low-rank heads, not empty
    int trimmed = 32768;            ///< rows of a static head
    /// Rows of the gathered heads and of SpecVocab's shortlists, each at most `vocab`; not empty.
    std::vector<int> gather = {2048, 3072};
    int k = 10;  ///< top tokens per row
    std::vector<int> rows = {1, 10};
    /// Rows of a feed-forward product [4 d, d], measured with our kernels and with cuBLASLt. The result says
    /// from which number of rows on --numerics fast pays off.
    std::vector<int> product_rows = {1, 8, 16, 32, 33, 64, 65, 128, 256, 512};
    double layer_mb = 487;    ///< read between calls "in sequence", as a draft layer does
    double stream_mb = 4000;  ///< memory that the reads come from
    double cold_mb = 200;     ///< weights between two uses of the same copy, so that L2 holds none of it
    int clock_reads = 1500;   ///< reads of up to 1 GiB before the clocks are queried
    int calls = 20;           ///< calls of an op in one graph
    int replays = 50;         ///< launches of that graph
    /// Called with each op as it is measured, so that a run that is ended early loses nothing.
    std::function<void(const DeviceMeasured&)> on_measured = nullptr;
};
struct DeviceMeasured {
    std::string op;
    std::string mode;  ///< "cold", "warm", "in sequence"; of the same weights between two streams "kept, ..."
    int rows = 0;
    double median_us = 0, best_us = 0;  ///< of one call
    double spread_us = 0;               ///< interquartile range of the replays
    double bytes = 0;                   ///< weights and rows that the op reads and writes
    double nu = 0;                      ///< speed relative to the full head with the same rows and mode; 0 =
                                        ///< none
    double flops = 0;                   ///< of products with many rows; 0 = not computed
    double gb_per_s() const { return median_us > 0 ? bytes / (median_us * 1e3) : 0; }
};
struct DeviceBenchReport {
    DeviceInfo device;
    /// SM and memory clock, power and temperature during a stream of reads, from nvidia-smi; "" = unknown.
    std::string clocks_before, clocks_after;
    std::string library;  ///< "cuBLASLt 13.1.0"; "" = not found
    std::string why_no_library;
    int library_wins_from = 0;  ///< smallest of product_rows from which on the library is faster; 0 = never
    double copy_gb_per_s = 0;   ///< bytes read and written by a large copy
    int largest_cluster = 0;    ///< the most blocks of 256 threads in a cluster; 0 = no clusters
    std::vector<std::string> not_timed;  ///< what a size rules out, one line each
    std::vector<DeviceMeasured> ops;
};
Result<DeviceBenchReport> bench_cuda(const DeviceBenchOptions& options);

}  // namespace draftscope::kernels
