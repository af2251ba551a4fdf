#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

/// Dense f32 products and losses for fitting. Unlike in the ops of decoding, a row's result may depend on the
/// other rows of the call. Equal calls give the same bits at every thread count.
namespace draftscope::kernels {

enum class Operand { plain, transposed };

/// C = op(A) op(B), or C += op(A) op(B) with `accumulate`. C is [M, N], op(A) [M, K], op(B) [K, N].
void gemm(Exec& exec, Operand a_as, Rows<const float> a, Operand b_as, Rows<const float> b, Rows<float> c,
          bool accumulate = false);

/// Forward KL divergence KL(teacher || student) of each row's softmaxes. `kl` [rows] gets the values,
/// `gradient` the gradients for the student's logits times weights[r]. `gradient` may alias the student's
/// rows. Teacher logits of -inf have no mass.
void forward_kl(Exec& exec, Rows<const float> teacher, Rows<const float> student,
                std::span<const float> weights, std::span<float> kl, Rows<float> gradient);

}  // namespace draftscope::kernels
