#include "engine/transformer/target_pass.h"

#include <vector>

namespace draftscope {
namespace {

std::size_t floats(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * sizeof(float);
}

}  // namespace

Status TargetPass::prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                           std::span<const DecoderLayer> layers, std::span<const float> output_norm,
                           const kernels::Matrix& lm_head) {
    shape_ = shape;
    layers_ = layers;
    lm_head_ = &lm_head;
    DS_TRY(decoder_.prepare(backend, shape, rope, layers));
    const std::lock_guard lock(backend.submit_mutex());
    output_norm_ = decoder_.keep(output_norm);
    if (output_norm_ == nullptr) return decoder_.device().out_of_memory("the target's weights");
    return backend.synchronize();
}

bool TargetPass::reserve(int rows, int aux_width, bool logits) {
    kernels::Backend& backend = decoder_.device();
    const void* before[] = {hidden_.as<void>(), aux_.as<void>(), logits_.data()};
    const bool enough = hidden_.reserve(backend, floats(rows, shape_.hidden)) &&
                        (aux_width == 0 || aux_.reserve(backend, floats(rows, aux_width))) &&
                        (!logits || logits_.reserve(backend, rows, lm_head_->n()));
    const void* after[] = {hidden_.as<void>(), aux_.as<void>(), logits_.data()};
    if (!std::equal(std::begin(before), std::end(before), std::begin(after))) decoder_.forget_graphs();
    return enough;
}

Status TargetPass::run(const DecoderBatch& batch, Rows<const float> embeddings,
                       std::span<const int> aux_layers, float* hidden, float* aux, float* logits) {
    kernels::Backend& backend = decoder_.device();
    const std::lock_guard lock(backend.submit_mutex());
    const int rows = batch.rows(), d = shape_.hidden;
    const int aux_width = static_cast<int>(aux_layers.size()) * d;
    if (rows == 0) return {};
    const bool with_logits = logits != nullptr;
    if (!reserve(rows, aux_width, with_logits))
        return decoder_.device().out_of_memory(fmt::format("{} rows of the target", rows),
                                               "use a smaller batch or tree");
    DS_TRY(decoder_.begin(batch));
    backend.upload(decoder_.residual(), embeddings.data, floats(rows, d));
    enqueue_layers(rows, aux_layers, with_logits, with_logits, with_logits ? 1 : 0);
    backend.download(hidden, hidden_.as<float>(), floats(rows, d));
    if (aux_width > 0) backend.download(aux, aux_.as<float>(), floats(rows, aux_width));
    if (with_logits) backend.download(logits, logits_.data(), floats(rows, lm_head_->n()));
    return backend.synchronize();
}

Status TargetPass::enqueue_trees(const DecoderBatch& batch, const kernels::EmbeddingTable& embeddings,
                                 std::span<const int> aux_layers, const TreeStep& step,
                                 const LogitsQuery& query) {
    kernels::Backend& backend = decoder_.device();
    const int rows = batch.rows();
    const void* before = logits_.data();
    if (!logits_.begin(backend, lm_head_->n(), query, step) ||
        !reserve(rows, static_cast<int>(aux_layers.size()) * shape_.hidden, false))
        return backend.out_of_memory(fmt::format("{} rows of the target", rows),
                                     "use a smaller batch or tree");
    if (logits_.data() != before) decoder_.forget_graphs();
    DS_TRY(decoder_.begin(batch));
    if (!backend.is_host()) use_places(step.rows_on_device());
    embeddings.enqueue(backend, step.rows_on_device().tokens, rows, decoder_.residual(), shape_.hidden);
    constexpr int tree_rows = 2;
    enqueue_layers(rows, aux_layers, true, logits_.stored(), tree_rows);
    if (!logits_.stored()) logits_.enqueue_best(*lm_head_, decoder_.input());
    return {};
}

void TargetPass::use_places(const kernels::TreeRows& trees) {
    if (trees.positions != latest_.positions || trees.ancestor_counts != latest_.ancestor_counts ||
        trees.ancestor_slots != latest_.ancestor_slots)
        decoder_.forget_graphs();
    latest_ = trees;
    decoder_.use_places(trees);
}

/// Enqueues all layers and the final norm, with `head_input` also as input of the LM head, and with
/// `with_logits` the LM head. `tag` distinguishes passes whose row positions are in different memory.
void TargetPass::enqueue_layers(int rows, std::span<const int> aux_layers, bool head_input, bool with_logits,
                                int tag) {
    kernels::Backend& backend = decoder_.device();
    const int d = shape_.hidden, aux_width = static_cast<int>(aux_layers.size()) * d;
    extra_.assign(aux_layers.begin(), aux_layers.end());
    extra_.push_back(tag);
    decoder_.replay(extra_, [&] {
        const int count = static_cast<int>(layers_.size());
        const auto copy_residual = [&](int layer) {
            for (std::size_t a = 0; a < aux_layers.size(); ++a)
                if (aux_layers[a] == layer)
                    backend.copy_rows({.from = decoder_.residual(),
                                       .from_stride = d,
                                       .count = rows,
                                       .cols = d,
                                       .to = aux_.as<float>() + static_cast<std::ptrdiff_t>(a) * d,
                                       .to_stride = aux_width});
        };
        for (int layer = 0; layer < count; ++layer) {
            copy_residual(layer);
            decoder_.run(layer, layer + 1 < count ? &layers_[layer + 1].qkv : lm_head_);
        }
        copy_residual(count);
        kernels::RmsNormOp norm;
        norm.x = decoder_.residual();
        norm.x_stride = norm.y_stride = d;
        norm.rows = rows;
        norm.width = d;
        norm.weight = output_norm_;
        norm.eps = shape_.norm_eps;
        norm.y = hidden_.as<float>();
        if (head_input) {
            norm.half = decoder_.input();
            norm.half_stride = norm.half_columns = decoder_.hidden_stride();
        }
        backend.rms_norm(norm);
        if (!with_logits) return;
        kernels::MatmulOp head;
        head.weights = lm_head_->device_matrix();
        head.x = decoder_.input();
        head.rows = rows;
        head.y = logits_.data();
        head.y_stride = lm_head_->n();
        backend.matmul(head);
    });
}

}  // namespace draftscope
