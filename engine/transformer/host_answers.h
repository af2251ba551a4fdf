#pragma once

#include "engine/transformer/device_logits.h"
#include "kernels/matmul_topk.h"

namespace draftscope {

/// Answers a query on the CPU in one pass over the LM head that does not store the logits. Each row's best
/// tokens and logsumexp are computed from chunks of logits while these are in cache.
class HostAnswers {
  public:
    /// Returns whether the query only requests greedy choices and best tokens, and this pass is faster.
    /// Sampling, ranks and set probabilities need complete rows.
    static bool can_answer(const kernels::Exec& exec, const LogitsQuery& query);
    /// Writes the results for `hidden` [rows, d], bit-identical to logsumexp() and topk() over its logits.
    void answer(kernels::Exec& exec, const kernels::Matrix& lm_head, Rows<const float> hidden,
                const LogitsQuery& query, LogitsResult& out);

  private:
    kernels::PartialTopK partials_;
};

}  // namespace draftscope
