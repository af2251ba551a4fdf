#pragma once

#include "engine/transformer/device_logits.h"
#include "kernels/matmul_topk.h"

namespace draftscope {

/// Answers about rows of logits from one pass over the LM head, which never writes them: each row's best
/// tokens and the log of its sum of exponentials are taken from a stretch of logits while it is in a cache.
class HostAnswers {
  public:
    /// Greedy choices and best tokens; draws, ranks and masses need whole rows.
    static bool can_answer(const kernels::Exec& exec, const RowQuestion& question);
    /// The bits of logsumexp() and topk() over the logits of `hidden` [rows, d].
    void answer(kernels::Exec& exec, const kernels::Matrix& lm_head, Rows<const float> hidden,
                const RowQuestion& question, RowAnswers& out);

  private:
    kernels::PartialTopK partials_;
};

}  // namespace draftscope
