#include "engine/transformer/decoder_layer.h"

#include <cmath>

#include "base/numel.h"
#include "kernels/elementwise.h"
#include "kernels/fused.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

namespace draftscope {
namespace {

Rows<float> rows_in(std::vector<float>& buffer, int rows, int cols) {
    const std::size_t size = numel(rows, cols);
    if (buffer.size() < size) buffer.resize(size);
    return {buffer.data(), rows, cols};
}

Rows<float> columns(Rows<float> rows, int first, int count) {
    return {rows.data + first, rows.rows, count, rows.stride};
}

}  // namespace

std::size_t DecoderLayer::bytes() const {
    return qkv.bytes() + attn_out.bytes() + gate_up.bytes() + down.bytes() +
           (attn_norm.size() + ffn_norm.size() + qkv_bias.size() + q_norm.size() + k_norm.size() +
            attn_post_norm.size() + ffn_post_norm.size()) *
               sizeof(float);
}

void DecoderBatch::clear() {
    places_.clear();
    positions_.clear();
    tails_.clear();
}

void DecoderBatch::add_row(KvCache& cache, int slot, int position, int prefix, std::span<const int> tail) {
    places_.push_back({&cache, slot, prefix, static_cast<int>(tails_.size()), static_cast<int>(tail.size())});
    positions_.push_back(position);
    tails_.insert(tails_.end(), tail.begin(), tail.end());
}

std::uint64_t DecoderBatch::kv_bytes(int kv_width, std::size_t value_bytes) const {
    std::uint64_t slots = 0;
    const KvCache* previous = nullptr;
    int longest = 0;
    // Rows of one sequence read their prefix once.
    for (const Place& place : places_) {
        if (place.cache != previous) slots += static_cast<std::uint64_t>(longest);
        if (place.cache != previous) longest = 0;
        previous = place.cache;
        longest = std::max(longest, place.prefix);
    }
    slots += static_cast<std::uint64_t>(longest) + places_.size();
    return slots * 2 * static_cast<std::uint64_t>(kv_width) * value_bytes;
}

void LayerPass::norm_qk(const DecoderLayer& layer, Rows<float> qkv) {
    const auto norm = [&](const std::vector<float>& weight, int first, int width) {
        const int span = static_cast<int>(weight.size());
        for (int at = first; span != 0 && at < first + width; at += span) {
            const Rows<float> part = columns(qkv, at, span);
            kernels::rms_norm(exec_, part, weight, shape_.norm_eps, part);
        }
    };
    norm(layer.q_norm, 0, shape_.q_width());
    norm(layer.k_norm, shape_.q_width(), shape_.kv_width());
}

void LayerPass::prefetch_keys(int cache_layer) {
    const KvCache* cache = nullptr;
    int block = -1;
    for (const DecoderBatch::Place& place : batch_.places_) {
        if (place.cache == cache && place.slot / kernels::key_lanes == block) continue;
        cache = place.cache;
        block = place.slot / kernels::key_lanes;
        kernels::prefetch_key(place.cache->type(), shape_.kv_width(), place.slot,
                              place.cache->keys(cache_layer));
    }
}

void LayerPass::store_keys(int cache_layer) {
    const int q_width = shape_.q_width();
    const int kv_width = shape_.kv_width();
    const std::size_t row_width = q_width + 2 * kv_width;
    for (std::size_t r = 0; r < batch_.places_.size(); ++r) {
        const DecoderBatch::Place& place = batch_.places_[r];
        const float* k = batch_.qkv_.data() + r * row_width + q_width;
        const kernels::KvType type = place.cache->type();
        kernels::store_key(exec_, type, k, kv_width, place.slot, place.cache->keys(cache_layer));
        kernels::store_value(exec_, type, k + kv_width, kv_width, place.slot,
                             place.cache->values(cache_layer));
    }
}

void LayerPass::attention(int cache_layer) {
    const std::size_t q_width = shape_.q_width();
    const std::size_t row_width = q_width + 2 * static_cast<std::size_t>(shape_.kv_width());
    batch_.queries_.resize(batch_.places_.size());
    for (std::size_t r = 0; r < batch_.places_.size(); ++r) {
        const DecoderBatch::Place& place = batch_.places_[r];
        kernels::AttentionQuery& query = batch_.queries_[r];
        query.q = batch_.qkv_.data() + r * row_width;
        query.out = batch_.attention_.data() + r * q_width;
        query.keys = place.cache->keys(cache_layer);
        query.values = place.cache->values(cache_layer);
        query.prefix = place.prefix;
        query.ancestor_slots = {batch_.tails_.data() + place.ancestor_first,
                                static_cast<std::size_t>(place.ancestor_count)};
    }
    if (batch_.places_.empty()) return;
    kernels::AttentionShape shape{shape_.heads, shape_.kv_heads, shape_.head_dim,
                                  1.0f / std::sqrt(static_cast<float>(shape_.head_dim))};
    shape.kv = batch_.places_.front().cache->type();
    kernels::attention(exec_, shape, batch_.queries_);
}

void LayerPass::attend(const DecoderLayer& layer, int cache_layer, Rows<const float> input,
                       Rows<float> residual) {
    attend(layer, cache_layer, {}, input, residual);
}

void LayerPass::attend(const DecoderLayer& layer, int cache_layer, const std::vector<float>& norm,
                       Rows<const float> input, Rows<float> residual) {
    const int rows = batch_.rows();
    const Rows<float> qkv = rows_in(batch_.qkv_, rows, layer.qkv.n());
    prefetch_keys(cache_layer);
    kernels::prefetch_next(exec_, &layer.attn_out);
    kernels::norm_matmul(exec_, layer.qkv, {norm, shape_.norm_eps}, input, qkv,
                         layer.qkv_bias.empty() ? nullptr : layer.qkv_bias.data());
    norm_qk(layer, qkv);
    // q and k are contiguous: one call rotates both.
    const int rotated = shape_.heads + shape_.kv_heads;
    kernels::rope(exec_, columns(qkv, 0, rotated * shape_.head_dim), rotated, rope_, batch_.positions_);
    store_keys(cache_layer);
    const Rows<float> mixed = rows_in(batch_.attention_, rows, shape_.q_width());
    attention(cache_layer);
    kernels::prefetch_next_gated(exec_, layer.gate_up);
    add_output(layer.attn_out, mixed, layer.attn_post_norm, residual);
}

void LayerPass::add_output(const kernels::Matrix& weights, Rows<const float> input,
                           const std::vector<float>& post_norm, Rows<float> residual) {
    const Rows<float> projected = rows_in(batch_.projected_, input.rows, shape_.hidden);
    if (post_norm.empty()) return kernels::matmul_add(exec_, weights, input, projected, residual);
    kernels::matmul(exec_, weights, input, projected);
    kernels::rms_norm(exec_, projected, post_norm, shape_.norm_eps, projected);
    kernels::add(exec_, projected, residual);
}

void LayerPass::feed_forward(const DecoderLayer& layer, Rows<float> residual, const kernels::Matrix* next) {
    const Rows<float> gate_up = rows_in(batch_.gate_up_, batch_.rows(), 2 * shape_.ffn);
    kernels::prefetch_next(exec_, &layer.down);
    kernels::norm_matmul_silu(exec_, layer.gate_up, {layer.ffn_norm, shape_.norm_eps}, residual, gate_up);
    kernels::prefetch_next(exec_, next);
    add_output(layer.down, columns(gate_up, 0, shape_.ffn), layer.ffn_post_norm, residual);
}

void LayerPass::run(const DecoderLayer& layer, int cache_layer, Rows<float> residual,
                    const kernels::Matrix* next) {
    attend(layer, cache_layer, layer.attn_norm, residual, residual);
    feed_forward(layer, residual, next);
}

}  // namespace draftscope
