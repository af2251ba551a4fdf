#include "engine/heads/best_of_product.h"

#include <algorithm>

#include "base/numel.h"
#include "kernels/host_rows.h"

namespace draftscope {

bool BestOfProduct::reserve(kernels::Backend& backend, int rows, int outputs, int k) {
    // A device that splits large products may not split small ones, and the other way round.
    const bool split = splits(backend, 1, k) || splits(backend, outputs, k);
    if (separate_ && !(largest_.resize_at_least(backend, numel(rows, 1)) &&
                       largest_ids_.resize_at_least(backend, numel(rows, 1))))
        return false;
    if (split && !logits_.resize_at_least(backend, numel(rows, outputs))) return false;
    return scratch_.resize_at_least(backend, std::max(kernels::topk_scratch_bytes(rows, outputs, k),
                                                      kernels::matmul_topk_scratch_bytes(rows, outputs, k)));
}

void BestOfProduct::enqueue(HeadCall& call, kernels::MatmulTopKOp op, std::uint64_t bytes) {
    op.scratch = scratch_.data();
    if (!splits(call.backend, op.support, op.k)) {
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, op.rows, bytes);
        return call.backend.matmul_topk(op);
    }
    kernels::MatmulOp product;
    product.weights = op.weights;
    product.x = op.x;
    product.rows = op.rows;
    product.y = logits_.data();
    product.y_stride = op.weights.n;
    product.bias = op.bias;
    {
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, op.rows, bytes);
        call.backend.matmul(product);
    }
    // The sums and the selection each read the logits.
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::topk, call.level, op.rows,
                                   2 * numel(op.rows, op.support) * sizeof(float));
    kernels::TopKOp select;
    select.logits = product.y;
    select.stride = product.y_stride;
    select.rows = op.rows;
    select.support = op.support;
    select.k = op.k;
    select.ids = op.ids;
    select.values = op.values;
    select.logsumexp = op.logsumexp;
    select.scratch = op.scratch;
    if (separate_) {
        enqueue_softmax(call, select);
        select.logsumexp = nullptr;
    }
    call.backend.topk(select);
}

/// Enqueues the sums alone. A device has no op without a selection, so it selects one candidate, too.
void BestOfProduct::enqueue_softmax(HeadCall& call, const kernels::TopKOp& select) {
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::softmax, call.level, select.rows,
                                   numel(select.rows, select.support) * sizeof(float));
    if (call.backend.is_host()) {
        const Rows<const float> logits(select.logits, select.rows, select.support,
                                       static_cast<std::ptrdiff_t>(select.stride));
        return kernels::logsumexp(call.backend.pool(), logits, {select.logsumexp, numel(select.rows, 1)});
    }
    kernels::TopKOp sums = select;
    sums.k = 1;
    sums.ids = largest_ids_.data();
    sums.values = largest_.data();
    call.backend.topk(sums);
}

}  // namespace draftscope
