#include "engine/transformer/decoder.h"

#include <algorithm>
#include <bit>
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

const float* Decoder::keep(std::span<const float> values) {
    if (values.empty() || backend_->is_host()) return values.empty() ? nullptr : values.data();
    kernels::DeviceBuffer buffer;
    if (!buffer.reserve(*backend_, values.size_bytes())) {
        // Without the error, a null norm would mean that the layer has none.
        backend_->set_error(backend_->out_of_memory("norms and biases").message);
        return nullptr;
    }
    backend_->upload(buffer.as<float>(), values.data(), values.size_bytes());
    kept_.push_back(std::move(buffer));
    return kept_.back().as<float>();
}

Status Decoder::prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                        std::span<const DecoderLayer> layers, int input_width) {
    backend_ = &backend;
    shape_ = shape;
    input_width_ = input_width > 0 ? input_width : shape.hidden;
    layers_ = layers;
    const std::lock_guard lock(backend.submit_mutex());
    rope_ = &rope;
    if (!backend.is_host()) rope.extend(rope.positions);
    cos_ = keep(rope.cos);
    sin_ = keep(rope.sin);
    for (const DecoderLayer& layer : layers) {
        Vectors v;
        v.attn_norm = keep(layer.attn_norm);
        v.ffn_norm = keep(layer.ffn_norm);
        v.qkv_bias = keep(layer.qkv_bias);
        v.q_norm = keep(layer.q_norm);
        v.k_norm = keep(layer.k_norm);
        v.attn_post_norm = keep(layer.attn_post_norm);
        v.ffn_post_norm = keep(layer.ffn_post_norm);
        v.q_norm_width = static_cast<int>(layer.q_norm.size());
        v.k_norm_width = static_cast<int>(layer.k_norm.size());
        vectors_.push_back(v);
    }
    return backend.synchronize();
}

bool Decoder::reserve(int rows) {
    if (rows <= capacity_) return true;
    const int room = std::max(rows, 2 * capacity_);
    const std::int64_t qkv = shape_.q_width() + 2 * shape_.kv_width();
    const int input = padded_columns(std::max(input_width_, shape_.hidden));
    const bool enough = residual_.reserve(*backend_, product(room, shape_.hidden) * sizeof(float)) &&
                        input_.reserve(*backend_, product(room, input)) &&
                        qkv_.reserve(*backend_, product(room, qkv) * sizeof(float)) &&
                        mixed_.reserve(*backend_, product(room, padded_columns(shape_.q_width()))) &&
                        gate_up_.reserve(*backend_, product(room, 2 * shape_.ffn) * sizeof(float)) &&
                        active_.reserve(*backend_, product(room, padded_columns(shape_.ffn))) &&
                        projected_.reserve(*backend_, product(room, shape_.hidden) * sizeof(float));
    capacity_ = enough ? room : 0;
    ++reservations_;
    return enough;
}

/// Lists the caches of the rows' sequences and computes the number of attention blocks.
void Decoder::list_sequences(const DecoderBatch& batch) {
    caches_.clear();
    row_sequences_.clear();
    listed_.clear();
    std::int64_t longest = 0;
    for (const DecoderBatch::Place& place : batch.places_) {
        auto found = std::find(listed_.rbegin(), listed_.rend(), place.cache);
        if (found == listed_.rend()) {
            listed_.push_back(place.cache);
            caches_.push_back(place.cache->planes());
            found = listed_.rbegin();
        }
        row_sequences_.push_back(static_cast<std::int32_t>(std::distance(found, listed_.rend()) - 1));
        longest = std::max<std::int64_t>(longest, place.prefix + place.ancestor_count);
    }
    const auto needed =
        static_cast<unsigned>((longest + kernels::attention_block - 1) / kernels::attention_block);
    blocks_ = static_cast<int>(std::bit_ceil(std::max(needed, 1u)));
}

void Decoder::list_tiles() {
    const int tallest = kernels::attention_tile_rows({shape_.heads, shape_.kv_heads, shape_.head_dim});
    tiles_.clear();
    for (int r = 0; r < rows_; ++r) {
        const bool joins =
            !tiles_.empty() && tiles_.back() < tallest && row_sequences_[r] == row_sequences_[r - 1];
        if (joins) {
            ++tiles_.back();
        } else {
            tiles_.insert(tiles_.end(), {r, 1});
        }
    }
}

/// Uploads the caches' addresses if they changed. An upload between two passes makes a device wait for its
/// copy engine.
bool Decoder::upload_caches() {
    const auto same = [](const kernels::KvPlanes& a, const kernels::KvPlanes& b) {
        return a.data == b.data && a.plane == b.plane && a.type == b.type;
    };
    if (std::ranges::equal(caches_, uploaded_, same)) return true;
    uploaded_.clear();
    if (!d_caches_.upload(*backend_, caches_)) return false;
    uploaded_ = caches_;
    return true;
}

Decoder::Layout& Decoder::add_layout() {
    if (layouts_.size() == num_layouts_) layouts_.emplace_back();
    return layouts_[num_layouts_++];
}

/// Lists the arrays of AttentionBatch in the order of place(), after list_sequences() and list_tiles().
void Decoder::list_layout(const DecoderBatch& batch, std::vector<std::int32_t>& out) const {
    using Place = DecoderBatch::Place;
    const auto add = [&](const auto& values) { out.insert(out.end(), values.begin(), values.end()); };
    const auto add_field = [&](int Place::*field) {
        for (const Place& row : batch.places_) out.push_back(row.*field);
    };
    out.clear();
    add(row_sequences_);
    add_field(&Place::slot);
    add(batch.positions_);
    add_field(&Place::prefix);
    add_field(&Place::ancestor_first);
    add_field(&Place::ancestor_count);
    add(tiles_);
    add(batch.tails_);
}

/// Uploads the listed layouts. Graphs contain their addresses, which depend on the sizes of the layouts
/// before until a reallocation.
bool Decoder::upload_listed() {
    std::size_t count = 0;
    for (std::size_t i = 0; i < num_layouts_; ++i) count += layouts_[i].values.size();
    if (!d_places_.begin(*backend_, count)) {
        num_layouts_ = 0;
        return false;
    }
    for (std::size_t i = 0; i < num_layouts_; ++i) layouts_[i].d_values = d_places_.add(layouts_[i].values);
    d_places_.upload(*backend_);
    return true;
}

Status Decoder::upload_layouts(std::span<const DecoderBatch> batches) {
    num_layouts_ = 0;
    for (const DecoderBatch& batch : batches) {
        rows_ = batch.rows();
        list_sequences(batch);
        list_tiles();
        list_layout(batch, add_layout().values);
    }
    if (upload_listed()) return {};
    return backend_->out_of_memory(fmt::format("{} passes", batches.size()), "use a smaller batch or tree");
}

/// Points places_ to the layout of `batch`.
bool Decoder::place(const DecoderBatch& batch) {
    list_layout(batch, layout_);
    const auto end = layouts_.begin() + static_cast<std::ptrdiff_t>(num_layouts_);
    auto found =
        std::find_if(layouts_.begin(), end, [&](const Layout& one) { return one.values == layout_; });
    if (found == end) {
        num_layouts_ = 0;
        std::swap(add_layout().values, layout_);
        if (!upload_listed()) return false;
        found = layouts_.begin();
    }
    if (!upload_caches()) return false;
    const std::int32_t* at = found->d_values;
    const auto take = [&](std::size_t count) { return std::exchange(at, at + count); };
    const std::size_t rows = batch.places_.size();
    places_.caches = d_caches_.data();
    for (const std::int32_t** field : {&places_.sequence, &places_.slot, &places_.position, &places_.prefix,
                                       &places_.ancestor_first, &places_.ancestor_count})
        *field = take(rows);
    places_.tiles = take(tiles_.size());
    places_.ancestor_slots = at;
    return true;
}

/// Returns the partial sums of attention that a pass needs at once. The CPU has scratch memory of its own.
std::size_t Decoder::partial_floats() const {
    if (backend_->is_host()) return 0;
    const kernels::AttentionHeads heads{shape_.heads, shape_.kv_heads, shape_.head_dim};
    const std::size_t per_row = product(shape_.heads, blocks_) * (shape_.head_dim + 2);
    return std::max(per_row * kernels::attention_tile_rows(heads),
                    std::min(per_row * rows_, max_partial_bytes / sizeof(float)));
}

Status Decoder::begin(const DecoderBatch& batch) {
    rows_ = batch.rows();
    if (rows_ == 0) return {};
    if (backend_->is_host()) {
        rope_->extend(*std::ranges::max_element(batch.positions_) + 1);
        cos_ = rope_->cos.data();
        sin_ = rope_->sin.data();
    }
    list_sequences(batch);
    for (const DecoderBatch::Place& place : batch.places_)
        if (place.cache->planes().data == nullptr)
            return backend_->out_of_memory(
                fmt::format("the keys and values of {} slots", place.cache->slots()), "use a smaller batch");
    list_tiles();
    if (!reserve(rows_) || !partial_.resize_at_least(*backend_, partial_floats()) || !place(batch))
        return backend_->out_of_memory(fmt::format("a pass of {} rows", rows_),
                                       "use a smaller batch or tree");
    return {};
}

void Decoder::attention(int cache_layer) {
    const kernels::AttentionHeads heads{shape_.heads, shape_.kv_heads, shape_.head_dim};
    kernels::AttentionOp op;
    op.q = qkv_.as<float>();
    op.q_stride = shape_.q_width() + 2 * shape_.kv_width();
    op.shape = heads;
    op.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    op.places = places_;
    op.layer = cache_layer;
    op.blocks = blocks_;
    op.partial = partial_.as<float>();
    op.y = mixed_;
    op.y_stride = padded_columns(shape_.q_width());
    const std::size_t per_row = product(shape_.heads, blocks_) * (shape_.head_dim + 2) * sizeof(float);
    const int max_rows = backend_->is_host() ? rows_ : static_cast<int>(partial_.bytes() / per_row);
    const auto tiles = tiles_.size() / 2;
    for (std::size_t first = 0; first < tiles;) {
        std::size_t end = first;
        op.first_row = tiles_[2 * first];
        op.rows = 0;
        while (end < tiles && op.rows + tiles_[2 * end + 1] <= max_rows) op.rows += tiles_[2 * end++ + 1];
        op.places.tiles = places_.tiles + 2 * first;
        op.tiles = static_cast<int>(end - first);
        backend_->attention(op);
        first = end;
    }
}

void Decoder::add_output(const kernels::Matrix& weights, kernels::Activations x, const float* post_norm,
                         const kernels::Matrix* next, bool next_is_gated) {
    kernels::FusedMatmulOp op;
    op.product.weights = weights.device_matrix();
    op.product.x = x;
    op.product.rows = rows_;
    op.product.y = post_norm == nullptr ? residual() : projected_.as<float>();
    op.product.y_stride = shape_.hidden;
    op.product.accumulate = post_norm == nullptr;
    if (next != nullptr) op.next = next->device_matrix();
    op.next_is_gated = next_is_gated;
    backend_->fused_matmul(op);
    if (post_norm == nullptr) return;
    kernels::RmsNormOp norm;
    norm.x = projected_.as<float>();
    norm.x_stride = norm.y_stride = shape_.hidden;
    norm.rows = rows_;
    norm.width = shape_.hidden;
    norm.weight = post_norm;
    norm.eps = shape_.norm_eps;
    norm.y = residual();
    norm.add = true;
    backend_->rms_norm(norm);
}

void Decoder::norm_queries_and_keys(const Vectors& vectors) {
    const auto norm_heads = [&](const float* weight, int span, int first, int part) {
        if (weight == nullptr) return;
        kernels::RmsNormOp op;
        op.x = qkv_.as<float>() + first;
        op.x_stride = op.y_stride = shape_.q_width() + 2 * shape_.kv_width();
        op.rows = rows_;
        op.groups = part / span;
        op.width = span;
        op.weight = weight;
        op.eps = shape_.norm_eps;
        op.y = qkv_.as<float>() + first;
        backend_->rms_norm(op);
    };
    norm_heads(vectors.q_norm, vectors.q_norm_width, 0, shape_.q_width());
    norm_heads(vectors.k_norm, vectors.k_norm_width, shape_.q_width(), shape_.kv_width());
}

void Decoder::attend(int layer, int cache_layer, kernels::Activations x, const kernels::NormSpec& norm) {
    const DecoderLayer& weights = layers_[layer];
    const Vectors& vectors = vectors_[layer];
    const int width = shape_.q_width() + 2 * shape_.kv_width();
    const kernels::AttentionHeads heads{shape_.heads, shape_.kv_heads, shape_.head_dim};
    const kernels::RopeStoreOp store{qkv_.as<float>(), width, rows_, heads, cos_, sin_, places_, cache_layer};
    kernels::FusedMatmulOp project;
    project.product.weights = weights.qkv.device_matrix();
    project.product.x = x;
    project.product.rows = rows_;
    project.product.y = qkv_.as<float>();
    project.product.y_stride = width;
    project.product.bias = vectors.qkv_bias;
    project.norm = norm;
    project.next = weights.attn_out.device_matrix();
    project.store = &store;
    backend_->fused_matmul(project);
    norm_queries_and_keys(vectors);
    backend_->rope_store(store);
    attention(cache_layer);
    add_output(weights.attn_out, mixed_, vectors.attn_post_norm, &weights.gate_up, true);
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
    project.product.y = gate_up_.as<float>();
    project.product.y_stride = 2 * shape_.ffn;
    project.norm = normed_residual(vectors.ffn_norm);
    project.gated = active_;
    project.gated_stride = padded_columns(shape_.ffn);
    project.next = weights.down.device_matrix();
    backend_->fused_matmul(project);
    add_output(weights.down, active_, vectors.ffn_post_norm, next, false);
}

void Decoder::run(int layer, const kernels::Matrix* next) {
    attend_residual(layer, layer, vectors_[layer].attn_norm);
    feed_forward(layer, next);
}

void Decoder::replay(std::span<const std::int64_t> key, FunctionRef<void()> work) {
    // The ops of a pass depend on its rows, attention blocks, tiles and addresses.
    graph_shape_.assign({rows_, blocks_, reservations_, kernels::as_key(places_.sequence),
                         kernels::as_key(places_.position), kernels::as_key(places_.ancestor_count),
                         kernels::as_key(places_.ancestor_slots), kernels::as_key(d_caches_.data()),
                         kernels::as_key(partial_.data())});
    graph_shape_.insert(graph_shape_.end(), tiles_.begin(), tiles_.end());
    graph_shape_.insert(graph_shape_.end(), key.begin(), key.end());
    graphs_.run(*backend_, graph_shape_, work);
}

}  // namespace draftscope
