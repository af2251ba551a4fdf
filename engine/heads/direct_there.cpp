#include "engine/heads/direct_there.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {
namespace {

std::size_t count(int rows, int cols) {
    return numel(rows, cols);
}

}  // namespace

bool DirectThere::fits(ProposeContext&, int levels, int k, std::span<HeadState* const>) {
    if (k > kernels::max_topk) return false;
    const TokenId* ids = nullptr;
    for (int level = 0; level < levels; ++level) {
        const auto direct = head_->as_linear(level);
        if (!direct || direct->support < k || !direct->up->on_device() ||
            (direct->down != nullptr && !direct->down->on_device()))
            return false;
        if (level > 0 && direct->ids.data() != ids) return false;
        ids = direct->ids.data();
    }
    return true;
}

/// The same support at every level: what a column is does not depend on its level then.
DrawnColumns DirectThere::drawn_columns(int levels) const {
    DrawnColumns columns;
    for (int level = 0; level < levels; ++level) {
        const LinearHead direct = *head_->as_linear(level);
        if (level > 0 && direct.support != columns.support) return {};
        columns.support = direct.support;
        columns.stride = std::max(columns.stride, direct.up->n());
    }
    return columns;
}

bool DirectThere::keep_ids(kernels::Device& device, std::span<const TokenId> ids) {
    if (std::equal(ids.begin(), ids.end(), ids_.begin(), ids_.end())) return true;
    ids_.clear();  // what lies there is lost, also where memory is out
    if (!ids_there_.reserve(device, std::max<std::size_t>(ids.size_bytes(), 4))) return false;
    device.upload(ids_there_.as<void>(), ids.data(), ids.size_bytes());
    ids_.assign(ids.begin(), ids.end());
    return true;
}

/// Brought over once: it does not change as long as the head lives.
bool DirectThere::keep_bias(kernels::Device& device, int level, std::span<const float> bias) {
    const std::size_t at = level;
    if (biases_.size() <= at) biases_.resize(at + 1);
    if (bias.empty() || biases_[at].as<void>() != nullptr) return true;
    if (!biases_[at].reserve(device, bias.size_bytes())) return false;
    device.upload(biases_[at].as<void>(), bias.data(), bias.size_bytes());
    return true;
}

bool DirectThere::reserve(kernels::Device& device, int levels, int rows, int k) {
    for (int level = 0; level < levels; ++level) {
        const LinearHead direct = *head_->as_linear(level);
        if (!keep_bias(device, level, direct.bias)) return false;
        const int narrow = direct.down == nullptr ? 0 : direct.down->n();
        if ((narrow > 0 && (!narrow_.reserve(device, count(rows, narrow) * sizeof(float)) ||
                            !narrow_half_.reserve(device, count(rows, kernels::padded_columns(narrow)) *
                                                              sizeof(kernels::half_t)))) ||
            !scratch_.reserve(device, kernels::matmul_topk_scratch_bytes(rows, direct.support, k)))
            return false;
    }
    return keep_ids(device, head_->as_linear(0)->ids);
}

void DirectThere::ask(LevelThere& call) {
    const LinearHead direct = *head_->as_linear(call.level);
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
    const float* bias = biases_[call.level].as<float>();
    call.tokens = ids_.empty() ? nullptr : ids_there_.as<std::int32_t>();
    if (call.drawn_from != nullptr) {
        kernels::MatmulOp up;
        up.weights = direct.up->device_matrix();
        up.x = x;
        up.rows = call.rows;
        up.y = call.drawn_from;
        up.y_stride = call.drawn_stride;
        up.bias = bias;
        return call.device.matmul(up);
    }
    call.device.matmul_topk({direct.up->device_matrix(), x, call.rows, direct.support, call.k, bias, call.ids,
                             call.logits, call.sums, scratch_.as<void>()});
}

}  // namespace draftscope
