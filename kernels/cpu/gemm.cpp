#include "kernels/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cassert>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {
namespace {

/// Rows of C one call computes. Fixed, so that the cuts are those of the shape and never of the thread count.
constexpr int tall_block = 512;
constexpr int wide_block = 2048;
constexpr int short_rows = 64;

char letter(Operand operand) {
    return operand == Operand::plain ? 'N' : 'T';
}

}  // namespace

void gemm(Exec& exec, Operand a_as, Rows<const float> a, Operand b_as, Rows<const float> b, Rows<float> c,
          bool accumulate) {
    const int k = a_as == Operand::plain ? a.cols : a.rows;
    assert(k == (b_as == Operand::plain ? b.rows : b.cols));
    assert(c.rows == (a_as == Operand::plain ? a.rows : a.cols));
    assert(c.cols == (b_as == Operand::plain ? b.cols : b.rows));
    if (c.rows == 0 || c.cols == 0) return;
    // Both of a product's extents may be the long one: the vocabulary is the columns of the logits and the
    // rows of a head's gradient. Small results over a long sum are cut finely.
    const int row_step = c.cols >= wide_block       ? std::max(c.rows, 1)
                         : c.rows >= 2 * tall_block ? tall_block
                                                    : short_rows;
    const int col_step = c.cols >= wide_block ? wide_block : c.cols;
    const int row_blocks = blocks_of(c.rows, row_step);
    const int col_blocks = blocks_of(c.cols, col_step);
    const std::int64_t operations = std::int64_t{c.rows} * c.cols * std::max(k, 1);
    split_range(exec, row_blocks * col_blocks, operations, [&](int, int begin, int end) {
        omp_set_num_threads(1);
        for (int block = begin; block < end; ++block) {
            const int row = block / col_blocks * row_step;
            const int col = block % col_blocks * col_step;
            const int m = std::min(row_step, c.rows - row);
            const int n = std::min(col_step, c.cols - col);
            const float* left = a_as == Operand::plain ? a.row_data(row) : a.data + row;
            const float* right = b_as == Operand::plain ? b.data + col : b.row_data(col);
            dnnl_sgemm(letter(a_as), letter(b_as), m, n, k, 1.0f, left, a.stride, right, b.stride,
                       accumulate ? 1.0f : 0.0f, c.row_data(row) + col, c.stride);
        }
    });
}

}  // namespace draftscope::kernels
