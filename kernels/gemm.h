#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

/// Dense f32 products and the loss of fitting. Unlike the ops of decoding, a row's result may depend on which
/// rows share the call; for equal calls it is the same bits at every thread count.
namespace draftscope::kernels {

enum class Operand { plain, transposed };

/// C = op(A) op(B), or C += with `accumulate`. C is [M, N]; op(A) is [M, K], op(B) is [K, N].
void gemm(Exec& exec, Operand a_as, Rows<const float> a, Operand b_as, Rows<const float> b, Rows<float> c,
          bool accumulate = false);

/// Forward KL divergence of row r's softmaxes, KL(teacher || student), into `kl` [rows]; its gradient for the
/// student's logits times weights[r] into `gradient`, which may be the student's rows. -inf teacher logits
/// have no mass.
void forward_kl(Exec& exec, Rows<const float> teacher, Rows<const float> student,
                std::span<const float> weights, std::span<float> kl, Rows<float> gradient);

}  // namespace draftscope::kernels
