#include "engine/heads/best_of_product.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {

bool BestOfProduct::reserve(kernels::Backend& backend, int rows, int outputs, int k) {
    // A device that splits large products may not split small ones, and the other way round.
    if ((backend.splits_matmul_topk(1, k) || backend.splits_matmul_topk(outputs, k)) &&
        !logits_.resize_at_least(backend, numel(rows, outputs)))
        return false;
    return scratch_.resize_at_least(backend, std::max(kernels::topk_scratch_bytes(rows, outputs, k),
                                                      kernels::matmul_topk_scratch_bytes(rows, outputs, k)));
}

void BestOfProduct::enqueue(HeadCall& call, kernels::MatmulTopKOp op, std::uint64_t bytes) {
    op.scratch = scratch_.data();
    if (!call.backend.splits_matmul_topk(op.support, op.k)) {
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
    call.backend.topk(select);
}

}  // namespace draftscope
