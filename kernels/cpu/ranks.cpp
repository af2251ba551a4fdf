#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {
namespace {

/// Values that stay in L1 while every column of the row is compared with them.
constexpr int rank_chunk = 4096;

/// Turns "above this" into "at least `value`", where denormals count as zero.
float just_below(float value) {
    constexpr float smallest = std::numeric_limits<float>::min();
    if (std::abs(value) < smallest) return -smallest;
    return std::nextafter(value, -std::numeric_limits<float>::infinity());
}

int at_least(const RowKernels& kernels, const float* x, int n, float value) {
    if (value == -std::numeric_limits<float>::infinity())
        return static_cast<int>(std::count_if(x, x + n, [](float v) { return !std::isnan(v); }));
    return kernels.count_above(x, n, just_below(value));
}

/// Counts the values of x[begin, end) that precede `column`.
int before_in(const RowKernels& kernels, const float* x, int begin, int end, int column) {
    const float value = x[column];
    const int border = std::clamp(column, begin, end);
    const int after = std::clamp(column + 1, begin, end);
    return at_least(kernels, x + begin, border - begin, value) +
           kernels.count_above(x + after, end - after, value);
}

}  // namespace

void token_ranks(ThreadPool& pool, Rows<const float> x, std::span<const std::int32_t> rows,
                 std::span<const std::int32_t> columns, std::span<std::int32_t> ranks) {
    assert(rows.size() == columns.size() && rows.size() == ranks.size());
    const RowKernels& kernels = row_kernels(pool);
    constexpr int values_per_operation = 8;
    const int count = static_cast<int>(rows.size());
    split_range(
        pool, count, std::int64_t{count} * x.cols / values_per_operation, [&](int, int begin, int end) {
            std::fill(ranks.begin() + begin, ranks.begin() + end, 0);
            for (int first = begin; first < end;) {
                const auto row = rows[first];
                int last = first;
                while (last < end && rows[last] == row) ++last;
                const float* values = x.row_data(row);
                for (int at = 0; at < x.cols; at += rank_chunk)
                    for (int i = first; i < last; ++i)
                        ranks[i] +=
                            before_in(kernels, values, at, std::min(at + rank_chunk, x.cols), columns[i]);
                first = last;
            }
        });
}

}  // namespace draftscope::kernels
