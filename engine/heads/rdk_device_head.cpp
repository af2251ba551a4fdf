#include "engine/heads/rdk_device_head.h"

#include <algorithm>
#include <utility>

#include "base/numel.h"

namespace draftscope {
namespace {

/// Size of the scratch memory of rows that are redistributed together: enough to use the whole device.
constexpr std::size_t max_mass_bytes = std::size_t{64} << 20;

}  // namespace

void RdkDeviceHead::set(LmHead& base, Givers sources) {
    base_ = base.device_head();
    givers_ = std::move(sources);
    fresh_ = true;
}

int RdkDeviceHead::max_set_size(int level, int rows) const {
    const int own = base_->max_set_size(level, rows);
    return own == 0 ? 0 : vocab() + own;
}

/// The sizes of the base head's sets follow the values that it downloads itself.
int RdkDeviceHead::num_downloads(int level, int rows) const {
    return base_->num_downloads(level, rows) + (base_->max_set_size(level, 1) == 0 ? 0 : rows);
}

int RdkDeviceHead::rows_at_a_time() const {
    return static_cast<int>(std::max<std::size_t>(max_mass_bytes / (numel(1, vocab()) * sizeof(double)), 1));
}

bool RdkDeviceHead::upload_sources(kernels::Device& device) {
    if (!fresh_) return true;
    fresh_ =
        !(d_first_.upload_exact(device, givers_.first) && d_sources_.upload_exact(device, givers_.tokens) &&
          d_weights_.upload_exact(device, givers_.weights));
    return !fresh_;
}

bool RdkDeviceHead::reserve(kernels::Device& device, int levels, int rows, int k) {
    columns_ = base_->support_columns(levels);
    const std::size_t cells = numel(rows, columns_.stride);
    return base_->reserve(device, levels, rows, 1) && upload_sources(device) &&
           logits_.resize_at_least(device, cells) && tokens_.resize_at_least(device, cells) &&
           d_sizes_.resize_at_least(device, numel(rows, 1)) &&
           mass_.resize_at_least(device, numel(std::min(rows, rows_at_a_time()), vocab())) &&
           spread_.resize_at_least(device, numel(rows, vocab())) &&
           scratch_.resize_at_least(device, kernels::topk_scratch_bytes(rows, vocab(), k)) &&
           bits_.resize_at_least(device, numel(2, (vocab() + 31) / 32));
}

void RdkDeviceHead::spread(kernels::Device& device, kernels::RedistributeOp op, float* out,
                           std::int64_t out_stride) {
    op.vocab = vocab();
    op.first = d_first_.as<std::int32_t>();
    op.sources = d_sources_.as<std::int32_t>();
    op.weights = d_weights_.as<float>();
    op.scratch = mass_.as<double>();
    op.out_stride = out_stride;
    const int rows = op.rows;
    const std::int32_t *const tokens = op.tokens, *const sizes = op.sizes;
    for (int first = 0; first < rows; first += op.rows) {
        op.rows = std::min(rows - first, rows_at_a_time());
        op.logits = logits_.as<float>() + first * op.stride;
        if (tokens != nullptr) op.tokens = tokens + first * op.token_stride;
        if (sizes != nullptr) op.sizes = sizes + first;
        op.out = out + first * out_stride;
        device.redistribute(op);
    }
}

std::span<const DeviceSequence> RdkDeviceHead::own_sequences(const DeviceLevel& call) {
    own_.assign(call.sequences.begin(), call.sequences.end());
    std::int32_t* size = call.downloads + base_->num_downloads(call.level, call.rows);
    for (DeviceSequence& own : own_) {
        if (own.set == nullptr) continue;
        own.set += vocab();
        own.set_size = size++;
    }
    return own_;
}

void RdkDeviceHead::reach(kernels::Device& device, const DeviceSequence& own, int room,
                          const DeviceSequence& to) {
    kernels::ReachableTokensOp op;
    op.tokens = own.set;
    op.size = own.set_size;
    op.max_count = room;
    op.vocab = vocab();
    op.first = d_first_.as<std::int32_t>();
    op.sources = d_sources_.as<std::int32_t>();
    op.bits = bits_.as<std::uint32_t>();
    op.out = to.set;
    op.out_size = to.set_size;
    device.list_reachable_tokens(op);
}

void RdkDeviceHead::enqueue(DeviceLevel& call) {
    DeviceLevel inner = call;
    inner.sequences = own_sequences(call);
    inner.k = 1;
    inner.support_logits = logits_.as<float>();
    inner.support_stride = columns_.stride;
    if (columns_.own) {
        inner.support_tokens = tokens_.as<std::int32_t>();
        inner.support_sizes = d_sizes_.as<std::int32_t>();
        sizes_.clear();
        for (const DeviceSequence& sequence : call.sequences)
            sizes_.insert(sizes_.end(), sequence.rows, base_->support_size(call.level, sequence.state));
        call.device.upload(d_sizes_.data(), sizes_.data(), sizes_.size() * sizeof(std::int32_t));
    }
    base_->enqueue(inner);
    for (std::size_t i = 0; call.sets_requested && i < own_.size(); ++i)
        reach(call.device, own_[i], base_->max_set_size(call.level, own_[i].rows), call.sequences[i]);
    const DeviceSpans::Scope scope(
        call.spans, call.phases, Phase::topk, call.level, call.rows,
        static_cast<std::uint64_t>(call.rows) * givers_.tokens.size() * (sizeof(TokenId) + sizeof(float)));
    kernels::RedistributeOp op;
    op.stride = columns_.stride;
    op.rows = call.rows;
    op.support = columns_.support;
    op.temperature = call.temperature > 0 ? static_cast<float>(call.temperature) : 1.0f;
    op.tokens = columns_.own ? inner.support_tokens : inner.tokens;
    op.token_stride = columns_.own ? columns_.stride : 0;
    op.sizes = columns_.own ? inner.support_sizes : nullptr;
    call.tokens = nullptr;
    if (call.support_logits != nullptr)
        return spread(call.device, op, call.support_logits, call.support_stride);
    spread(call.device, op, spread_.as<float>(), vocab());
    kernels::TopKOp select;
    select.logits = spread_.as<float>();
    select.stride = select.support = vocab();
    select.rows = call.rows;
    select.k = call.k;
    select.ids = call.ids;
    select.values = call.logits;
    select.logsumexp = call.sums;
    select.scratch = scratch_.as<void>();
    call.device.topk(select);
}

void RdkDeviceHead::collect(const DeviceLevelResult& back) {
    const std::size_t downloads = base_->num_downloads(back.level, back.rows);
    DeviceLevelResult own = back;
    own.downloads = back.downloads.first(downloads);
    std::vector<std::span<const TokenId>> sets;
    std::vector<std::int32_t> sizes;
    for (std::size_t i = 0; i < back.sets.size(); ++i) {
        const int room = base_->max_set_size(back.level, back.sequences[i].rows);
        sizes.push_back(std::clamp(back.downloads[downloads + i], 0, room));
        sets.push_back(back.sets[i].empty() ? back.sets[i] : back.sets[i].subspan(vocab()));
    }
    own.sets = sets;
    own.set_sizes = sizes;
    base_->collect(own);
}

}  // namespace draftscope
