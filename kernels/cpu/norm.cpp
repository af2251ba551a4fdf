#include "kernels/norm.h"

#include <cassert>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/split.h"

namespace draftscope::kernels {

void rms_norm(Exec& exec, Rows<const float> x, std::span<const float> weight, float eps, Rows<float> y) {
    assert(x.rows == y.rows && x.cols == y.cols && static_cast<int>(weight.size()) == x.cols);
    const RowKernels& kernels = row_kernels(exec);
    split_range(exec, x.rows, std::int64_t{x.rows} * x.cols, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            kernels.rms_norm(x.row_data(r), weight.data(), eps, x.cols, y.row_data(r));
        }
    });
}

}  // namespace draftscope::kernels
