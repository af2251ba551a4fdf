#include "engine/heads/head_common.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {

kernels::TopKOp topk_of(const HeadCall& call, int first, int rows, const float* logits, std::int64_t stride,
                        int support) {
    kernels::TopKOp op;
    op.logits = logits;
    op.stride = stride;
    op.rows = rows;
    op.support = support;
    op.k = call.k;
    op.ids = call.ids + numel(first, call.k);
    op.values = call.logits + numel(first, call.k);
    op.logsumexp = call.sums + first;
    return op;
}

HeadCost matrix_cost(const kernels::Matrix& rows) {
    return {static_cast<double>(rows.n()), rows.bytes(),
            2.0 * static_cast<double>(rows.n()) * static_cast<double>(rows.k()), Lane::critical};
}

Status check_weights(const HeadWeights& weights, std::string_view head) {
    if (weights.lm_head == nullptr || weights.vocab < 1 ||
        (weights.row_ids.empty() && weights.vocab > weights.lm_head->n()))
        return failed("head {}: no LM head for {} tokens", head, weights.vocab);
    return {};
}

HeadWeights with_ends(HeadWeights weights, bool keep) {
    if (!keep) weights.always_active.clear();
    return weights;
}

/// If all levels have the same tokens, they share one table. Otherwise each row has its own.
SupportColumns LmHead::support_columns(int levels) const {
    SupportColumns columns;
    const CallShape first = shape(0, 1);
    for (int level = 0; level < levels; ++level) {
        const CallShape one = shape(level, 1);
        columns.support = std::max(columns.support, one.support);
        columns.stride = std::max(columns.stride, one.stride);
        columns.per_row =
            columns.per_row || one.per_row || one.support != first.support || one.tokens != first.tokens;
        columns.counted = columns.counted || one.counted;
    }
    return columns;
}

int vocab_fraction(int vocab, int parts) {
    return std::min(vocab, (vocab / parts + 63) / 64 * 64);
}

}  // namespace draftscope
