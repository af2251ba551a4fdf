#include "engine/transformer/target_pass.h"

#include "base/numel.h"

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

Status TargetPass::run(const DecoderBatch& batch, Rows<const float> embeddings,
                       std::span<const int> aux_layers, float* hidden, float* aux, float* logits) {
    kernels::Backend& backend = decoder_.device();
    const std::lock_guard lock(backend.submit_mutex());
    const int rows = batch.rows(), d = shape_.hidden;
    const int aux_width = static_cast<int>(aux_layers.size()) * d;
    if (rows == 0) return {};
    memory_.begin(backend);
    PassOutputs outputs;
    outputs.hidden = memory_.alloc<float>(numel(rows, d));
    outputs.aux = aux_width == 0 ? nullptr : memory_.alloc<float>(numel(rows, aux_width));
    outputs.logits = logits == nullptr ? nullptr : memory_.alloc<float>(numel(rows, lm_head_->n()));
    if (!memory_.enough())
        return backend.out_of_memory(fmt::format("{} rows of the target", rows),
                                     "use a smaller batch or tree");
    DS_TRY(decoder_.begin(batch));
    backend.upload(decoder_.residual(), embeddings.data, floats(rows, d));
    enqueue_layers(rows, aux_layers, outputs, logits == nullptr ? Kind::layers : Kind::with_logits);
    backend.download(hidden, outputs.hidden, floats(rows, d));
    if (aux_width > 0) backend.download(aux, outputs.aux, floats(rows, aux_width));
    if (logits != nullptr) backend.download(logits, outputs.logits, floats(rows, lm_head_->n()));
    return backend.synchronize();
}

Status TargetPass::enqueue(const DecoderBatch& batch, const kernels::EmbeddingTable& embeddings,
                           const TreePass& pass) {
    kernels::Backend& backend = decoder_.device();
    const int rows = batch.rows();
    DS_TRY(decoder_.begin(batch));
    decoder_.use_rows(pass.rows);
    embeddings.enqueue(backend, pass.rows.tokens, rows, decoder_.residual(), shape_.hidden);
    enqueue_layers(rows, pass.aux_layers, pass.outputs, Kind::trees);
    if (pass.outputs.logits != nullptr) return {};
    kernels::MatmulTopKOp best = pass.best;
    best.weights = lm_head_->device_matrix();
    best.x = decoder_.input();
    best.rows = rows;
    backend.matmul_topk(best);
    return {};
}

/// Enqueues all layers, the final norm and, with logits, the LM head.
void TargetPass::enqueue_layers(int rows, std::span<const int> aux_layers, const PassOutputs& outputs,
                                Kind kind) {
    kernels::Backend& backend = decoder_.device();
    const int d = shape_.hidden, aux_width = static_cast<int>(aux_layers.size()) * d;
    key_.assign(aux_layers.begin(), aux_layers.end());
    key_.push_back(static_cast<std::int64_t>(kind));
    for (const void* address : {outputs.hidden, outputs.aux, outputs.logits})
        key_.push_back(kernels::as_key(address));
    decoder_.replay(key_, [&] {
        const int count = static_cast<int>(layers_.size());
        const auto copy_residual = [&](int layer) {
            for (std::size_t a = 0; a < aux_layers.size(); ++a)
                if (aux_layers[a] == layer)
                    backend.copy_rows({.from = decoder_.residual(),
                                       .from_stride = d,
                                       .count = rows,
                                       .cols = d,
                                       .to = outputs.aux + static_cast<std::ptrdiff_t>(a) * d,
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
        norm.y = outputs.hidden;
        if (kind != Kind::layers) {  // the input of the LM head
            norm.half = decoder_.input();
            norm.half_stride = norm.half_columns = decoder_.hidden_stride();
        }
        backend.rms_norm(norm);
        if (outputs.logits == nullptr) return;
        kernels::MatmulOp head;
        head.weights = lm_head_->device_matrix();
        head.x = decoder_.input();
        head.rows = rows;
        head.y = outputs.logits;
        head.y_stride = lm_head_->n();
        backend.matmul(head);
    });
}

}  // namespace draftscope
