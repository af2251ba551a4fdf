#include "engine/transformer/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/numel.h"

namespace draftscope {
namespace {

using kernels::padded_columns;

/// Memory for the partial sums of attention; passes that need more run attention in several parts.
constexpr std::size_t max_partial_bytes = std::size_t{256} << 20;

std::size_t product(std::int64_t a, std::int64_t b) {
    return numel(a, b);
}

}  // namespace

void DecoderActivations::set_shape(const LayerShape& shape, int input_width) {
    shape_ = shape;
    input_width_ = input_width;
}

bool DecoderActivations::reserve(kernels::Backend& backend, int rows) {
    if (rows <= capacity_) return true;
    const int grown = std::max(rows, 2 * capacity_);
    const std::int64_t qkv_width = shape_.q_width() + 2 * shape_.kv_width();
    const int input_columns = padded_columns(std::max(input_width_, shape_.hidden));
    const bool enough = residual.reserve(backend, product(grown, shape_.hidden) * sizeof(float)) &&
                        input.reserve(backend, product(grown, input_columns)) &&
                        qkv.reserve(backend, product(grown, qkv_width) * sizeof(float)) &&
                        mixed.reserve(backend, product(grown, padded_columns(shape_.q_width()))) &&
                        gate_up.reserve(backend, product(grown, 2 * shape_.ffn) * sizeof(float)) &&
                        active.reserve(backend, product(grown, padded_columns(shape_.ffn))) &&
                        projected.reserve(backend, product(grown, shape_.hidden) * sizeof(float));
    capacity_ = enough ? grown : 0;
    ++reservations_;
    return enough;
}

const float* Decoder::keep(std::span<const float> values) {
    if (values.empty()) return nullptr;
    kernels::DeviceBuffer buffer;
    if (!buffer.reserve(*backend_, values.size_bytes())) {
        // Without the error, a null norm would mean that the layer has none.
        backend_->set_error(backend_->out_of_memory("norms and biases").message);
        return nullptr;
    }
    backend_->upload(buffer.as<float>(), values.data(), values.size_bytes());
    parameters_.push_back(std::move(buffer));
    return parameters_.back().as<float>();
}

Status Decoder::prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                        std::span<const DecoderLayer> layers, int input_width) {
    backend_ = &backend;
    shape_ = shape;
    layout_.set_heads({shape.heads, shape.kv_heads, shape.head_dim});
    activations_.set_shape(shape, input_width > 0 ? input_width : shape.hidden);
    layers_ = layers;
    const std::lock_guard lock(backend.submit_mutex());
    if (!rope_.load(backend, rope)) backend.set_error(backend.out_of_memory("norms and biases").message);
    for (const DecoderLayer& layer : layers)
        vectors_.push_back({keep(layer.attn_norm), keep(layer.ffn_norm), keep(layer.qkv_bias),
                            keep(layer.q_norm), keep(layer.k_norm), keep(layer.attn_post_norm),
                            keep(layer.ffn_post_norm)});
    return backend.synchronize();
}

Status Decoder::upload_layouts(std::span<const DecoderBatch> batches) {
    if (layout_.upload(*backend_, batches)) return {};
    return backend_->out_of_memory(fmt::format("{} passes", batches.size()), "use a smaller batch or tree");
}

/// Reserves memory for the partial sums of as many rows as attend at once.
bool Decoder::reserve_partial() {
    const std::size_t per_row = backend_->attention_partials(layout_.heads(), layout_.blocks());
    const std::size_t max_rows = max_partial_bytes / sizeof(float) / std::max<std::size_t>(per_row, 1);
    rows_at_once_ = std::max(kernels::attention_tile_rows(layout_.heads()),
                             static_cast<int>(std::min<std::size_t>(max_rows, rows_)));
    return partial_.resize_at_least(*backend_, per_row * rows_at_once_);
}

Status Decoder::begin(const DecoderBatch& batch) {
    rows_ = batch.rows();
    if (rows_ == 0) return {};
    rope_.extend(*std::ranges::max_element(batch.positions_) + 1);
    layout_.list(batch);
    for (const DecoderBatch::Entry& entry : batch.entries_)
        if (entry.cache->planes().data == nullptr)
            return backend_->out_of_memory(
                fmt::format("the keys and values of {} slots", entry.cache->slots()), "use a smaller batch");
    if (!reserve_rows(rows_) || !reserve_partial() || !layout_.select(*backend_, batch))
        return backend_->out_of_memory(fmt::format("a pass of {} rows", rows_),
                                       "use a smaller batch or tree");
    return {};
}

void Decoder::attention(int cache_layer) {
    kernels::AttentionOp op;
    op.q = activations_.qkv.as<float>();
    op.q_stride = shape_.q_width() + 2 * shape_.kv_width();
    op.shape = layout_.heads();
    op.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    op.batch = layout_.batch();
    op.layer = cache_layer;
    op.blocks = layout_.blocks();
    op.partial = partial_.as<float>();
    op.y = activations_.mixed;
    op.y_stride = padded_columns(shape_.q_width());
    const std::span<const std::int32_t> tiles = layout_.tiles();
    for (std::size_t first = 0, end = 0; first < tiles.size(); first = end) {
        op.first_row = tiles[first];
        op.rows = 0;
        for (; end < tiles.size() && op.rows + tiles[end + 1] <= rows_at_once_; end += 2)
            op.rows += tiles[end + 1];
        op.batch.tiles = layout_.batch().tiles + first;
        op.tiles = static_cast<int>(end - first) / 2;
        backend_->attention(op);
    }
}

void Decoder::add_output(const kernels::Matrix& weights, kernels::Activations x, const float* post_norm,
                         const kernels::Matrix* next, bool next_is_gated) {
    kernels::FusedMatmulOp op;
    op.product.weights = weights.device_matrix();
    op.product.x = x;
    op.product.rows = rows_;
    op.product.y = post_norm == nullptr ? residual() : activations_.projected.as<float>();
    op.product.y_stride = shape_.hidden;
    op.product.accumulate = post_norm == nullptr;
    if (next != nullptr) op.next = next->device_matrix();
    op.next_is_gated = next_is_gated;
    backend_->fused_matmul(op);
    if (post_norm == nullptr) return;
    kernels::RmsNormOp norm;
    norm.x = activations_.projected.as<float>();
    norm.x_stride = norm.y_stride = shape_.hidden;
    norm.rows = rows_;
    norm.width = shape_.hidden;
    norm.weight = post_norm;
    norm.eps = shape_.norm_eps;
    norm.y = residual();
    norm.add = true;
    backend_->rms_norm(norm);
}

void Decoder::norm_queries_and_keys(int layer) {
    const auto norm_heads = [&](const float* weight, std::size_t span, int first, int part) {
        if (weight == nullptr) return;
        kernels::RmsNormOp op;
        op.x = activations_.qkv.as<float>() + first;
        op.x_stride = op.y_stride = shape_.q_width() + 2 * shape_.kv_width();
        op.rows = rows_;
        op.width = static_cast<int>(span);
        op.groups = part / op.width;
        op.weight = weight;
        op.eps = shape_.norm_eps;
        op.y = activations_.qkv.as<float>() + first;
        backend_->rms_norm(op);
    };
    norm_heads(vectors_[layer].q_norm, layers_[layer].q_norm.size(), 0, shape_.q_width());
    norm_heads(vectors_[layer].k_norm, layers_[layer].k_norm.size(), shape_.q_width(), shape_.kv_width());
}

void Decoder::attend(int layer, int cache_layer, kernels::Activations x, const kernels::NormSpec& norm) {
    const DecoderLayer& weights = layers_[layer];
    const Vectors& vectors = vectors_[layer];
    const int width = shape_.q_width() + 2 * shape_.kv_width();
    const kernels::RopeStoreOp store{activations_.qkv.as<float>(),
                                     width,
                                     rows_,
                                     layout_.heads(),
                                     rope_.cos(),
                                     rope_.sin(),
                                     layout_.batch(),
                                     cache_layer};
    kernels::FusedMatmulOp project;
    project.product.weights = weights.qkv.device_matrix();
    project.product.x = x;
    project.product.rows = rows_;
    project.product.y = activations_.qkv.as<float>();
    project.product.y_stride = width;
    project.product.bias = vectors.qkv_bias;
    project.norm = norm;
    project.next = weights.attn_out.device_matrix();
    project.store = &store;
    backend_->fused_matmul(project);
    norm_queries_and_keys(layer);
    backend_->rope_store(store);
    attention(cache_layer);
    add_output(weights.attn_out, activations_.mixed, vectors.attn_post_norm, &weights.gate_up, true);
}

void Decoder::attend(int layer, int cache_layer, kernels::Activations x) {
    attend(layer, cache_layer, x, {});
}

void Decoder::attend_residual(int layer, int cache_layer, const float* norm) {
    attend(layer, cache_layer, input(), normed_residual(norm));
}

void Decoder::feed_forward(int layer, const kernels::Matrix* next) {
    const DecoderLayer& weights = layers_[layer];
    const Vectors& vectors = vectors_[layer];
    kernels::FusedMatmulOp project;
    project.product.weights = weights.gate_up.device_matrix();
    project.product.x = input();
    project.product.rows = rows_;
    project.product.y = activations_.gate_up.as<float>();
    project.product.y_stride = 2 * shape_.ffn;
    project.norm = normed_residual(vectors.ffn_norm);
    project.gated = activations_.active;
    project.gated_stride = padded_columns(shape_.ffn);
    project.next = weights.down.device_matrix();
    backend_->fused_matmul(project);
    add_output(weights.down, activations_.active, vectors.ffn_post_norm, next, false);
}

void Decoder::run(int layer, const kernels::Matrix* next) {
    attend_residual(layer, layer, vectors_[layer].attn_norm);
    feed_forward(layer, next);
}

void Decoder::replay(std::span<const std::int64_t> key, FunctionRef<void()> work) {
    // The ops of a pass depend on its rows, attention blocks, tiles and addresses.
    graph_shape_.assign({rows_, activations_.reservations(), kernels::as_key(partial_.data())});
    layout_.add_to_key(graph_shape_);
    graph_shape_.insert(graph_shape_.end(), key.begin(), key.end());
    graphs_.run(*backend_, graph_shape_, work);
}

}  // namespace draftscope
