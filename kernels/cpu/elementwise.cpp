#include "kernels/elementwise.h"

#include <cassert>

#include "kernels/backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {

void silu_mul(Exec& exec, Rows<const float> gate, Rows<const float> up, Rows<float> y) {
    assert(gate.rows == y.rows && up.rows == y.rows && gate.cols == y.cols && up.cols == y.cols);
    constexpr std::int64_t operations_per_value = 8;  // mostly the exponential
    const RowKernels& kernels = row_kernels(exec);
    const std::int64_t operations = std::int64_t{y.rows} * y.cols * operations_per_value;
    split_range(exec, y.rows, operations, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            kernels.silu_mul(gate.row_data(r), up.row_data(r), y.cols, y.row_data(r));
        }
    });
}

void cast_to_bf16(Exec& exec, Rows<float> x) {
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) kernels.cast_to_bf16(x.row_data(r), x.cols);
    });
}

void cast_to_dtype(Exec& exec, Rows<float> x) {
    if (exec.device() == nullptr || exec.device()->dtype() == Float16Kind::bf16) return cast_to_bf16(exec, x);
    for (int r = 0; r < x.rows; ++r)
        for (float& value : x.row(r)) value = f16_to_float(float_to_f16(value));
}

}  // namespace draftscope::kernels
