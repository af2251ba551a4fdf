#include "engine/heads/linear_lm_head.h"

#include <algorithm>

#include "kernels/matmul.h"

namespace draftscope {

void LinearLmHead::propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>,
                           int k, Proposal& out) {
    const HeadProduct own = product(context.level);
    Rows<const float> input = hidden;
    if (own.down != nullptr) {
        PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows, own.down->bytes());
        const Rows<float> narrow = as_matrix(narrow_, hidden.rows, own.down->n());
        kernels::matmul(context.exec, *own.down, hidden, narrow);
        input = narrow;
    }
    dense_.propose(context, *own.up, own.bias.empty() ? nullptr : own.bias.data(), own.support, own.ids,
                   input, k, own.up->bytes(), out);
    if (!own.ids.empty()) remap_ids(context, own.ids, hidden.rows, out);
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

bool LinearLmHead::covers(const HeadState*, TokenId token, int level) const {
    const HeadProduct own = product(level);
    if (own.ids.empty()) return token >= 0 && token < own.support;
    return std::binary_search(own.ids.begin(), own.ids.end(), token);
}

bool LinearLmHead::active_ids(const HeadState*, int level, std::vector<TokenId>& out) const {
    const HeadProduct own = product(level);
    if (own.ids.empty()) return false;
    out.assign(own.ids.begin(), own.ids.end());
    return true;
}

}  // namespace draftscope
