#include "engine/heads/linear_device_head.h"

#include <algorithm>

#include "base/numel.h"
#include "engine/heads/linear_lm_head.h"

namespace draftscope {

/// If all levels have the same tokens, they share one table. Otherwise each row has its own.
SupportColumns LinearDeviceHead::support_columns(int levels) const {
    SupportColumns columns;
    const HeadProduct first = head_.product(0);
    for (int level = 0; level < levels; ++level) {
        const HeadProduct one = head_.product(level);
        columns.support = std::max(columns.support, one.support);
        columns.stride = std::max(columns.stride, one.up->n());
        columns.own = columns.own || one.support != first.support || one.ids.data() != first.ids.data();
    }
    return columns;
}

int LinearDeviceHead::support_size(int level, const HeadState*) const {
    return head_.product(level).support;
}

/// Uploads the bias once, because it is constant, and the ids when they change.
bool LinearDeviceHead::upload_level(kernels::Device& device, int level) {
    const std::size_t at = level;
    if (levels_.size() <= at) levels_.resize(at + 1);
    Level& kept = levels_[at];
    const HeadProduct one = head_.product(level);
    if (!one.bias.empty() && kept.bias.empty() && !kept.bias.upload_exact(device, one.bias)) return false;
    if (std::equal(one.ids.begin(), one.ids.end(), kept.ids.begin(), kept.ids.end())) return true;
    kept.ids.clear();
    if (!kept.d_ids.upload_exact(device, one.ids)) return false;
    kept.ids.assign(one.ids.begin(), one.ids.end());
    return true;
}

bool LinearDeviceHead::reserve(kernels::Device& device, int levels, int rows, int k) {
    own_ = support_columns(levels).own;
    for (int level = 0; level < levels; ++level) {
        const HeadProduct one = head_.product(level);
        const int narrow = one.down == nullptr ? 0 : one.down->n();
        if (!upload_level(device, level) ||
            (narrow > 0 && (!narrow_.reserve(device, numel(rows, narrow) * sizeof(float)) ||
                            !narrow_half_.reserve(device, numel(rows, kernels::padded_columns(narrow)) *
                                                              sizeof(kernels::half_t)))) ||
            !scratch_.reserve(device, kernels::matmul_topk_scratch_bytes(rows, one.support, k)))
            return false;
    }
    return true;
}

void LinearDeviceHead::copy_tokens(DeviceLevel& call, int support) const {
    call.device.copy_rows(copy_of_words(levels_[call.level].d_ids.data(), 0, call.rows, support,
                                        call.support_tokens, call.support_stride));
}

void LinearDeviceHead::enqueue(DeviceLevel& call) {
    const HeadProduct direct = head_.product(call.level);
    const std::uint64_t bytes = direct.up->bytes() + (direct.down == nullptr ? 0 : direct.down->bytes());
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows, bytes);
    const kernels::half_t* x = call.x;
    if (direct.down != nullptr) {
        kernels::MatmulOp down;
        down.weights = direct.down->device_matrix();
        down.x = x;
        down.rows = call.rows;
        down.y = narrow_.as<float>();
        down.y_stride = down.weights.n;
        call.device.matmul(down);
        const int stride = direct.up->device_matrix().stride;
        call.device.cast({narrow_.as<float>(), down.weights.n, call.rows, down.weights.n,
                          narrow_half_.as<kernels::half_t>(), stride, stride});
        x = narrow_half_.as<kernels::half_t>();
    }
    const Level& kept = levels_[call.level];
    const float* bias = kept.bias.data();
    call.tokens = kept.ids.empty() ? nullptr : kept.d_ids.data();
    if (call.support_logits != nullptr) {
        kernels::MatmulOp up;
        up.weights = direct.up->device_matrix();
        up.x = x;
        up.rows = call.rows;
        up.y = call.support_logits;
        up.y_stride = call.support_stride;
        up.bias = bias;
        call.device.matmul(up);
        if (own_) copy_tokens(call, direct.support);
        return;
    }
    call.device.matmul_topk({direct.up->device_matrix(), x, call.rows, direct.support, call.k, bias, call.ids,
                             call.logits, call.sums, scratch_.as<void>()});
}

}  // namespace draftscope
