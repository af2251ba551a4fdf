#pragma once

#include <cassert>
#include <span>

#include "base/numel.h"
#include "base/spans.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/rope.h"

/// The row kernels of a layer as separate ops on rows, which the backend's fused ops must equal.
namespace draftscope::kernels {

/// y[m] = x[m] / sqrt(mean(x[m]^2) + eps) * weight. x and y may be the same rows.
inline void rms_norm(ThreadPool& exec, Rows<const float> x, std::span<const float> weight, float eps,
                     Rows<float> y) {
    assert(x.rows == y.rows && x.cols == y.cols && static_cast<int>(weight.size()) == x.cols);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            kernels.rms_norm(x.row_data(r), weight.data(), eps, x.cols, y.row_data(r));
        }
    });
}

/// y += x, both [M, D].
inline void add(ThreadPool& exec, Rows<const float> x, Rows<float> y) {
    assert(x.rows == y.rows && x.cols == y.cols);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, y.rows, std::int64_t{y.rows} * y.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) kernels.add(x.row_data(r), y.cols, y.row_data(r));
    });
}

/// Applies RoPE to every head of each row, in place. Row r is at positions[r]; x is [M, heads * head_dim].
inline void rope(ThreadPool& exec, Rows<float> x, int heads, const RopeTable& table,
                 std::span<const int> positions) {
    assert(x.cols == heads * table.head_dim && static_cast<int>(positions.size()) == x.rows);
    const RowKernels& kernels = row_kernels(exec);
    const int half = table.head_dim / 2;
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const int position = positions[r];
            assert(position >= 0 && position < table.rows());
            const std::size_t at = numel(position, half);
            kernels.rope(x.row_data(r), heads, half, table.cos.data() + at, table.sin.data() + at);
        }
    });
}

}  // namespace draftscope::kernels
