#include "kernels/gemm.h"

#if defined(DS_ONEDNN)
#include <dnnl.h>
#include <omp.h>
#endif

#include <algorithm>
#include <cassert>

#include "kernels/cpu/matmul/gemm_block.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {
namespace {

/// Rows of C that one call computes. Fixed, so that blocks depend on the shape and never on the thread count.
constexpr int tall_block = 512;
constexpr int wide_block = 2048;
constexpr int short_rows = 64;

#if defined(DS_ONEDNN)
char letter(Operand operand) {
    return operand == Operand::plain ? 'N' : 'T';
}

void multiply(const GemmBlock& g) {
    omp_set_num_threads(1);
    dnnl_sgemm(letter(g.a_as), letter(g.b_as), g.m, g.n, g.k, 1.0f, g.a, g.a_stride, g.b, g.b_stride,
               g.accumulate ? 1.0f : 0.0f, g.c, g.c_stride);
}
#else
void multiply(const GemmBlock& g) {
    gemm_block(g);
}
#endif

}  // namespace

void gemm_block(const GemmBlock& g) {
    for (int i = 0; i < g.m; ++i) {
        float* c = g.c + i * g.c_stride;
        if (!g.accumulate) std::fill_n(c, g.n, 0.0f);
        for (int p = 0; p < g.k; ++p) {
            const float a = g.a_as == Operand::plain ? g.a[i * g.a_stride + p] : g.a[p * g.a_stride + i];
            const float* b = g.b_as == Operand::plain ? g.b + p * g.b_stride : g.b + p;
            const std::int64_t step = g.b_as == Operand::plain ? 1 : g.b_stride;
            for (int j = 0; j < g.n; ++j) c[j] += a * b[j * step];
        }
    }
}

void gemm(Exec& exec, Operand a_as, Rows<const float> a, Operand b_as, Rows<const float> b, Rows<float> c,
          bool accumulate) {
    const int k = a_as == Operand::plain ? a.cols : a.rows;
    assert(k == (b_as == Operand::plain ? b.rows : b.cols));
    assert(c.rows == (a_as == Operand::plain ? a.rows : a.cols));
    assert(c.cols == (b_as == Operand::plain ? b.cols : b.rows));
    if (c.rows == 0 || c.cols == 0) return;
    // Either extent of a product may be the long one: the vocabulary is the columns of the logits and the
    // rows of a head's gradient. Small results with a long sum are split finely.
    const int row_step = c.cols >= wide_block       ? std::max(c.rows, 1)
                         : c.rows >= 2 * tall_block ? tall_block
                                                    : short_rows;
    const int col_step = c.cols >= wide_block ? wide_block : c.cols;
    const int row_blocks = ceil_div(c.rows, row_step);
    const int col_blocks = ceil_div(c.cols, col_step);
    const std::int64_t operations = std::int64_t{c.rows} * c.cols * std::max(k, 1);
    split_range(exec, row_blocks * col_blocks, operations, [&](int, int begin, int end) {
        for (int block = begin; block < end; ++block) {
            const int row = block / col_blocks * row_step;
            const int col = block % col_blocks * col_step;
            GemmBlock part{a_as, b_as};
            part.m = std::min(row_step, c.rows - row);
            part.n = std::min(col_step, c.cols - col);
            part.k = k;
            part.a = a_as == Operand::plain ? a.row_data(row) : a.data + row;
            part.a_stride = a.stride;
            part.b = b_as == Operand::plain ? b.data + col : b.row_data(col);
            part.b_stride = b.stride;
            part.c = c.row_data(row) + col;
            part.c_stride = c.stride;
            part.accumulate = accumulate;
            multiply(part);
        }
    });
}

}  // namespace draftscope::kernels
