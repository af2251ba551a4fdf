#include "kernels/rope.h"

#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {

RopeTable make_rope_table(int head_dim, float theta, int positions, std::span<const float> divisors) {
    assert(head_dim % 2 == 0);
    const int half = head_dim / 2;
    assert(divisors.empty() || static_cast<int>(divisors.size()) == half);
    RopeTable table;
    table.head_dim = head_dim;
    table.positions = positions;
    const std::size_t size = numel(positions, half);
    table.cos.resize(size);
    table.sin.resize(size);
    for (int j = 0; j < half; ++j) {
        double frequency = std::pow(static_cast<double>(theta), -2.0 * j / head_dim);
        if (!divisors.empty()) frequency /= static_cast<double>(divisors[j]);
        for (int p = 0; p < positions; ++p) {
            const std::size_t at = numel(p, half) + j;
            table.cos[at] = static_cast<float>(std::cos(p * frequency));
            table.sin[at] = static_cast<float>(std::sin(p * frequency));
        }
    }
    return table;
}

void rope(Exec& exec, Rows<float> x, int heads, const RopeTable& table, std::span<const int> positions) {
    assert(x.cols == heads * table.head_dim && static_cast<int>(positions.size()) == x.rows);
    const RowKernels& kernels = row_kernels(exec);
    const int half = table.head_dim / 2;
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const int position = positions[r];
            assert(position >= 0 && position < table.positions);
            const std::size_t at = numel(position, half);
            kernels.rope(x.row_data(r), heads, half, table.cos.data() + at, table.sin.data() + at);
        }
    });
}

}  // namespace draftscope::kernels
