#include "app/gui/models/kernels.h"

#include <algorithm>
#include <set>

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
    std::set<int> row_counts = {0};
    for (const KernelRow& row : all) {
        row_counts.insert(row.rows);
        if (std::ranges::find(table.precisions, row.precision) == table.precisions.end())
            table.precisions.push_back(row.precision);
    }
    table.row_counts.assign(row_counts.begin(), row_counts.end());
    const int min_rows = table.row_counts.size() < 2 ? 0 : table.row_counts[1];
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
    std::ranges::stable_sort(table.lines, {}, [&](const KernelLine& line) {
        return std::ranges::find(table.precisions, line.row.precision);
    });
    return table;
}

}  // namespace draftscope
