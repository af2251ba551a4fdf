#include "kernels/cpu/vector/elementwise.h"

#include <cassert>

#include "kernels/backend.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {

const RowKernels& row_kernels(const ThreadPool& pool) {
#if defined(DS_KERNELS_X86)
    if (pool.isa() >= Isa::avx512) return row_kernels_avx512;
    if (pool.isa() >= Isa::avx2) return row_kernels_avx2;
#endif
    (void)pool;
    return row_kernels_portable;
}

void silu_mul(ThreadPool& pool, Rows<const float> gate, Rows<const float> up, Rows<float> y) {
    assert(gate.rows == y.rows && up.rows == y.rows && gate.cols == y.cols && up.cols == y.cols);
    constexpr std::int64_t operations_per_value = 8;  // mostly the exponential
    const RowKernels& kernels = row_kernels(pool);
    const std::int64_t operations = std::int64_t{y.rows} * y.cols * operations_per_value;
    split_range(pool, y.rows, operations, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            kernels.silu_mul(gate.row_data(r), up.row_data(r), y.cols, y.row_data(r));
        }
    });
}

void cast_to_bf16(ThreadPool& pool, Rows<float> x) {
    const RowKernels& kernels = row_kernels(pool);
    split_range(pool, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) kernels.cast_to_bf16(x.row_data(r), x.cols);
    });
}

}  // namespace draftscope::kernels
