#include <algorithm>
#include <cassert>
#include <limits>

#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/elementwise.h"

namespace draftscope::kernels {

void exp_sums(ThreadPool& pool, Rows<const float> x, float scale, std::span<float> tops, Rows<float> sums) {
    const int blocks = ceil_div(x.cols, exp_sums_block);
    assert(static_cast<int>(tops.size()) == x.rows && sums.rows == x.rows && sums.cols == blocks);
    const RowKernels& kernels = row_kernels(pool);
    constexpr std::int64_t operations_per_value = 4;
    split_range(pool, x.rows, std::int64_t{x.rows} * x.cols * operations_per_value,
                [&](int, int begin, int end) {
                    for (int r = begin; r < end; ++r) {
                        const float* row = x.row_data(r);
                        float top = kernels.largest(row, x.cols);
                        if (top == -std::numeric_limits<float>::infinity()) top = 0.0f;
                        tops[r] = top;
                        for (int b = 0; b < blocks; ++b) {
                            const int first = b * exp_sums_block;
                            const int count = std::min(exp_sums_block, x.cols - first);
                            sums.row_data(r)[b] = kernels.sum_exp(row + first, count, top, scale);
                        }
                    }
                });
}

void exp_row(const ThreadPool& pool, std::span<const float> x, float shift, float scale,
             std::span<float> out) {
    assert(x.size() == out.size());
    row_kernels(pool).exp_scaled(x.data(), static_cast<int>(x.size()), shift, scale, out.data());
}

void cast_to_dtype(Backend& backend, Rows<float> x) {
    if (backend.dtype() == Float16Kind::bf16) return cast_to_bf16(backend.pool(), x);
    for (int r = 0; r < x.rows; ++r)
        for (float& value : x.row(r)) value = f16_to_float(float_to_f16(value));
}

}  // namespace draftscope::kernels
