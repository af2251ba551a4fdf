#include "app/gui/models/kernels.h"

#include <algorithm>

namespace draftscope {
namespace {

/// The full LM head: the reference of the other ops.
constexpr std::string_view full_head = "head";

const KernelRow* find(std::span<const KernelRow> all, std::string_view op, const std::string& precision,
                      int rows) {
    for (const KernelRow& row : all)
        if (row.op == op && row.precision == precision && row.rows == rows) return &row;
    return nullptr;
}

std::optional<double> ratio(double time, const KernelRow* to) {
    if (to == nullptr || !(to->median_us > 0)) return std::nullopt;
    return time / to->median_us;
}

}  // namespace

KernelTable kernel_table(std::span<const KernelRow> all, double probe, int rows,
                         const std::string& precision) {
    KernelTable table;
    for (const KernelRow& row : all) {
        if (row.rows > 0) table.row_counts.push_back(row.rows);
        if (std::find(table.precisions.begin(), table.precisions.end(), row.precision) ==
            table.precisions.end())
            table.precisions.push_back(row.precision);
    }
    std::sort(table.row_counts.begin(), table.row_counts.end());
    table.row_counts.erase(std::unique(table.row_counts.begin(), table.row_counts.end()),
                           table.row_counts.end());
    const int min_rows = table.row_counts.empty() ? 0 : table.row_counts.front();
    for (const KernelRow& row : all) {
        if (rows > 0 && row.rows > 0 && row.rows != rows) continue;
        if (!precision.empty() && row.precision != precision) continue;
        KernelLine line;
        line.row = row;
        line.gb_per_s = row.median_us > 0 ? row.bytes / (row.median_us * 1e3) : 0;
        const double reads = row.scattered_probe > 0 ? row.scattered_probe : probe;
        line.share = reads > 0 ? line.gb_per_s / reads : 0;
        if (row.op != full_head)
            line.ratio_to_head = ratio(row.median_us, find(all, full_head, row.precision, row.rows));
        if (row.rows > min_rows)
            line.ratio_to_one = ratio(row.median_us, find(all, row.op, row.precision, min_rows));
        table.lines.push_back(std::move(line));
    }
    std::stable_sort(table.lines.begin(), table.lines.end(), [&](const KernelLine& a, const KernelLine& b) {
        const auto place = [&](const KernelLine& line) {
            return std::find(table.precisions.begin(), table.precisions.end(), line.row.precision);
        };
        return place(a) < place(b);
    });
    return table;
}

}  // namespace draftscope
