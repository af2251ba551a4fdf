#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

/// What the Kernels panel draws: the measured ops of one row count, set against the memory and each other.
namespace draftscope {

struct KernelRow {
    std::string op;
    std::string precision;
    int rows = 0;  ///< M; 0 = the op has none
    double median_us = 0, best_us = 0;
    double bytes = 0;
    double scattered_probe = 0;  ///< GB/s of scattered rows as long as this op's; 0 = it reads one stream
};

struct KernelLine {
    KernelRow row;
    double gb_per_s = 0;
    double share = 0;               ///< of the bandwidth probe that reads as the op does
    std::optional<double> of_head;  ///< time against the full head of this precision and M: nu of the kernel
    std::optional<double> of_one;   ///< time against the same op at the smallest M: t(M) / t(1)
};

struct KernelTable {
    std::vector<int> row_counts;          ///< to choose from, rising
    std::vector<std::string> precisions;  ///< the same, in the order measured
    std::vector<KernelLine> lines;        ///< of the chosen ones, dearest precision kept together
};

/// `rows` and `precision` choose; 0 and "" take all. `probe` in GB/s, 0 = unknown.
KernelTable kernel_table(std::span<const KernelRow> all, double probe, int rows,
                         const std::string& precision);

}  // namespace draftscope
