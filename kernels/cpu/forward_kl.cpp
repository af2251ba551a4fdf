#include <cassert>
#include <vector>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/split.h"
#include "kernels/gemm.h"
#include "kernels/topk.h"

namespace draftscope::kernels {

void forward_kl(Exec& exec, Rows<const float> teacher, Rows<const float> student,
                std::span<const float> weights, std::span<float> kl, Rows<float> gradient) {
    assert(teacher.rows == student.rows && teacher.cols == student.cols);
    assert(gradient.rows == student.rows && gradient.cols == student.cols);
    const std::size_t rows = student.rows;
    assert(weights.size() == rows && kl.size() == rows);
    std::vector<float> sums(2 * rows);
    const std::span<float> teacher_sum = std::span(sums).first(rows);
    const std::span<float> student_sum = std::span(sums).last(rows);
    logsumexp(exec, teacher, teacher_sum);
    logsumexp(exec, student, student_sum);
    const RowKernels& kernels = row_kernels(exec);
    constexpr std::int64_t operations_per_value = 16;  // mostly two exponentials
    const std::int64_t operations = std::int64_t{student.rows} * student.cols * operations_per_value;
    split_range(exec, student.rows, operations, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const std::size_t i = r;
            kl[i] = kernels.forward_kl(teacher.row_data(r), teacher_sum[i], student.row_data(r),
                                       student_sum[i], student.cols, weights[i], gradient.row_data(r));
        }
    });
}

}  // namespace draftscope::kernels
