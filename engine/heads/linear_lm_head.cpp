#include "engine/heads/linear_lm_head.h"

#include <algorithm>

#include "engine/heads/head_common.h"

namespace draftscope {

CallShape LinearLmHead::shape(int level, int /*rows*/) const {
    const HeadProduct own = product(level);
    return {.stride = own.up->n(), .support = own.support, .tokens = own.ids.data()};
}

/// Uploads the bias once, because it is constant, and the ids when they change.
bool LinearLmHead::upload_level(kernels::Backend& backend, int level) {
    const std::size_t at = level;
    if (levels_.size() <= at) levels_.resize(at + 1);
    Level& kept = levels_[at];
    const HeadProduct one = product(level);
    if (!one.bias.empty() && kept.bias.empty() && !kept.bias.upload_exact(backend, one.bias)) return false;
    if (std::equal(one.ids.begin(), one.ids.end(), kept.ids.begin(), kept.ids.end())) return true;
    kept.ids.clear();
    if (!kept.d_ids.upload_exact(backend, one.ids)) return false;
    kept.ids.assign(one.ids.begin(), one.ids.end());
    return true;
}

bool LinearLmHead::reserve(kernels::Backend& backend, int levels, int rows, int k) {
    own_ = support_columns(levels).own;
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
kernels::Activations LinearLmHead::enqueue_down(HeadCall& call, const HeadProduct& own) {
    if (own.down == nullptr) return call.x;
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows,
                                   own.down->bytes());
    return down_.enqueue(call.backend, *own.down, call.x, call.rows);
}

/// Enqueues all logits, and the level's tokens to each row if rows have columns of their own.
void LinearLmHead::enqueue_support(HeadCall& call, const HeadProduct& own, kernels::Activations x) {
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows,
                                   own.up->bytes());
    const Level& kept = levels_[call.level];
    kernels::MatmulOp up;
    up.weights = own.up->device_matrix();
    up.x = x;
    up.rows = call.rows;
    up.y = call.support_logits;
    up.y_stride = call.support_stride;
    up.bias = kept.bias.data();
    call.backend.matmul(up);
    if (own_)
        call.backend.copy_rows(copy_of_words(kept.d_ids.data(), 0, call.rows, own.support,
                                             call.support_tokens, call.support_stride));
}

void LinearLmHead::propose(HeadCall& call) {
    const HeadProduct own = product(call.level);
    const Level& kept = levels_[call.level];
    const bool own_tokens = call.support_logits != nullptr && own_;  // ids are tokens then
    call.tokens = kept.ids.empty() || own_tokens ? nullptr : kept.d_ids.data();
    const kernels::Activations x = enqueue_down(call, own);
    if (call.support_logits != nullptr) return enqueue_support(call, own, x);
    best_.enqueue(call,
                  {own.up->device_matrix(), x, call.rows, own.support, call.k, kept.bias.data(), call.ids,
                   call.logits, call.sums},
                  own.up->bytes());
}

HeadCost LinearLmHead::cost_at(const HeadState*, int, int level) const {
    const HeadProduct own = product(level);
    HeadCost cost = matrix_cost(*own.up);
    if (own.down == nullptr) return cost;
    const HeadCost down = matrix_cost(*own.down);
    cost.bytes += down.bytes;
    cost.flops_per_row += down.flops_per_row;
    return cost;
}

ActiveSet LinearLmHead::active_set(const HeadState*, int level, std::vector<TokenId>&) const {
    const HeadProduct own = product(level);
    return {.all_below = own.support, .ids = own.ids};
}

}  // namespace draftscope
