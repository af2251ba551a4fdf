#include "engine/heads/linear_lm_head.h"

#include <algorithm>

#include "engine/heads/head_common.h"

namespace draftscope {

CallShape LinearLmHead::shape(int level, int /*rows*/) const {
    const HeadProduct factors = product(level);
    return {.stride = factors.up->n(), .support = factors.support, .tokens = factors.ids.data()};
}

/// Uploads the bias once, because it is constant, and the ids when they change.
bool LinearLmHead::upload_level(kernels::Backend& backend, int level) {
    const std::size_t at = level;
    if (levels_.size() <= at) levels_.resize(at + 1);
    Level& uploaded = levels_[at];
    const HeadProduct one = product(level);
    if (!one.bias.empty() && uploaded.bias.empty() && !uploaded.bias.upload_exact(backend, one.bias))
        return false;
    if (std::equal(one.ids.begin(), one.ids.end(), uploaded.ids.begin(), uploaded.ids.end())) return true;
    uploaded.ids.clear();
    if (!uploaded.d_ids.upload_exact(backend, one.ids)) return false;
    uploaded.ids.assign(one.ids.begin(), one.ids.end());
    return true;
}

bool LinearLmHead::reserve(kernels::Backend& backend, int levels, int rows, int k) {
    per_row_ = support_columns(levels).per_row;
    for (int level = 0; level < levels; ++level) {
        const HeadProduct one = product(level);
        if (!upload_level(backend, level) ||
            (one.down != nullptr && !down_.reserve(backend, *one.down, rows)) ||
            !best_.reserve(backend, rows, one.up->n(), k))
            return false;
    }
    return true;
}

/// Enqueues down h and returns it as input of the up-projection.
kernels::Activations LinearLmHead::enqueue_down(HeadCall& call, const HeadProduct& factors) {
    if (factors.down == nullptr) return call.x;
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows,
                                   factors.down->bytes());
    return down_.enqueue(call.backend, *factors.down, call.x, call.rows);
}

/// Enqueues all logits, and the level's tokens to each row if rows have columns of their own.
void LinearLmHead::enqueue_support(HeadCall& call, const HeadProduct& factors, kernels::Activations x) {
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows,
                                   factors.up->bytes());
    const Level& uploaded = levels_[call.level];
    kernels::MatmulOp up;
    up.weights = factors.up->device_matrix();
    up.x = x;
    up.rows = call.rows;
    up.y = call.support_logits;
    up.y_stride = call.support_stride;
    up.bias = uploaded.bias.data();
    call.backend.matmul(up);
    if (per_row_)
        call.backend.copy_rows(copy_of_words(uploaded.d_ids.data(), 0, call.rows, factors.support,
                                             call.support_tokens, call.support_stride));
}

void LinearLmHead::propose(HeadCall& call) {
    const HeadProduct factors = product(call.level);
    const Level& uploaded = levels_[call.level];
    const bool own_tokens = call.support_logits != nullptr && per_row_;  // ids are tokens then
    call.tokens = uploaded.ids.empty() || own_tokens ? nullptr : uploaded.d_ids.data();
    const kernels::Activations x = enqueue_down(call, factors);
    if (call.support_logits != nullptr) return enqueue_support(call, factors, x);
    best_.enqueue(call,
                  {factors.up->device_matrix(), x, call.rows, factors.support, call.k, uploaded.bias.data(),
                   call.ids, call.logits, call.sums},
                  factors.up->bytes());
}

HeadCost LinearLmHead::cost_at(const HeadState*, int, int level) const {
    const HeadProduct factors = product(level);
    HeadCost cost = matrix_cost(*factors.up);
    if (factors.down == nullptr) return cost;
    const HeadCost down = matrix_cost(*factors.down);
    cost.bytes += down.bytes;
    cost.flops_per_row += down.flops_per_row;
    return cost;
}

ActiveSet LinearLmHead::active_set(const HeadState*, int level, std::vector<TokenId>&) const {
    const HeadProduct factors = product(level);
    return {.all_below = factors.support, .ids = factors.ids};
}

}  // namespace draftscope
