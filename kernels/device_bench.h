#pragma once

#include <string>
#include <vector>

#include "kernels/device.h"

namespace draftscope::kernels {

/// What draft heads cost on a GPU (reference/performance.md, sections 8 and 10): random data, calls in one
/// graph, device time by events.
struct DeviceBenchOptions {
    int vocab = 128256;
    int hidden = 4096;
    int rank = 512;
    int trimmed = 32768;  ///< rows of a static head
    int gather = 3072;    ///< rows of MicroSpec's packed head
    int buckets = 132;    ///< of the striped router, times
    int per_bucket = 16;  ///< kept in each
    int k = 10;           ///< best tokens per row
    std::vector<int> rows = {1, 10};
    /// Of a feed-forward product [4 d, d], ours beside cuBLASLt's: where --numerics fast should begin.
    std::vector<int> product_rows = {1, 8, 16, 32, 33, 64, 65, 128, 256, 512};
    double layer_mb = 487;  ///< streamed between calls in sequence: what a draft layer reads
    int calls = 20;         ///< of an op in one graph
    int replays = 50;       ///< of that graph
};
struct DeviceMeasured {
    std::string op;
    std::string mode;  ///< "cold", "warm", "in sequence"; of the same weights between two streams "kept, ..."
    int rows = 0;
    double median_us = 0, best_us = 0;  ///< one call
    double bytes = 0;                   ///< weights and rows that it has to move
    double nu = 0;                      ///< against the full head of the same rows and mode; 0 = none
    double flops = 0;                   ///< of products of many rows; 0 = not said
    std::string torch;                  ///< what PyTorch's peer calls the same work; "" = it has none
    double gb_per_s() const { return median_us > 0 ? bytes / (median_us * 1e3) : 0; }
};
struct DeviceBenchReport {
    DeviceInfo device;
    /// SM and memory clock, power, temperature under a stream of reads, as nvidia-smi says; "" = unknown.
    std::string clocks_before, clocks_after;
    std::string library;  ///< "cuBLASLt 13.1.0"; "" = not found
    std::string why_no_library;
    int library_wins_from = 0;  ///< fewest of product_rows from which on it stays faster; 0 = nowhere
    double copy_gb_per_s = 0;   ///< read and written bytes of a large copy
    int largest_cluster = 0;    ///< most blocks of 256 threads in one; 0 = the GPU has no clusters
    std::vector<DeviceMeasured> ops;
};
Result<DeviceBenchReport> bench_cuda(const DeviceBenchOptions& options);

}  // namespace draftscope::kernels
