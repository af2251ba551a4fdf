#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

/// Model of the Kernels panel: measured ops compared with the memory bandwidth and with each other.
namespace draftscope {

/// One measured op.
struct KernelRow {
    std::string op;
    std::string precision;
    int rows = 0;  ///< M, rows of the activation; 0 = the op has no M
    double median_us = 0, best_us = 0;
    double bytes = 0;
    double scattered_probe = 0;  ///< GB/s of scattered rows of this length; 0 = one stream
};

/// One op with its ratios.
struct KernelLine {
    KernelRow row;
    double gb_per_s = 0;
    double share = 0;                     ///< of the bandwidth probe with the same access pattern
    std::optional<double> ratio_to_head;  ///< time / full head's at the same precision and M
    std::optional<double> ratio_to_one;   ///< time / same op's at the smallest M: t(M) / t(1)
};

struct KernelTable {
    std::vector<int> row_counts = {0};           ///< choices, ascending; 0 = all
    std::vector<std::string> precisions = {""};  ///< choices, in measured order; "" = all
    std::vector<KernelLine> lines;               ///< selected ops, grouped by precision
};

/// Builds the table. `rows` and `precision` filter; 0 and "" select all. `probe` in GB/s, 0 = unknown.
KernelTable kernel_table(std::span<const KernelRow> all, double probe, int rows,
                         const std::string& precision);

}  // namespace draftscope
