#include "engine/draft/eagle_layer.h"

#include "base/numel.h"

namespace draftscope {

Status EagleLayer::prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                           std::span<const DecoderLayer> layers, int input_width) {
    shape_ = shape;
    layers_ = layers;
    return decoder_.prepare(backend, shape, rope, layers_, input_width);
}

const float* EagleLayer::keep(std::span<const float> values) {
    const std::lock_guard lock(device().submit_mutex());
    return decoder_.keep(values);
}

void EagleLayer::set_fused(const kernels::Matrix& fc, const float* bias) {
    form_ = Form::fused;
    fc_ = &fc;
    fc_bias_ = bias;
}

void EagleLayer::set_joined(const Norms& norms) {
    form_ = Form::joined;
    norms_ = norms;
}

void EagleLayer::set_decoder(const float* head_norm, const kernels::Matrix& lm_head) {
    form_ = Form::decoder;
    norms_.head = head_norm;
    lm_head_ = &lm_head;
}

bool EagleLayer::reserve(RoundMemory& memory, int rows) {
    const int width = 2 * shape_.hidden;
    inputs_ = memory.backend.alloc<float>(numel(rows, width));
    if (form_ != Form::decoder)
        fused_ = memory.activations(device(), numel(rows, kernels::padded_columns(width)));
    return memory.enough() && decoder_.reserve_rows(rows);
}

Status EagleLayer::enqueue(const DecoderBatch& batch, const std::int32_t* ancestor_slots) {
    DS_TRY(decoder_.begin(batch));
    if (ancestor_slots != nullptr) decoder_.use_ancestor_slots(ancestor_slots);
    const std::int64_t key[] = {kernels::as_key(inputs_), kernels::as_key(fused_.halves)};
    decoder_.replay(key, [&] {
        switch (form_) {
            case Form::fused:
                return enqueue_fused(batch.rows());
            case Form::joined:
                return enqueue_joined(batch.rows());
            case Form::decoder:
                return enqueue_decoder(batch.rows());
        }
    });
    return {};
}

kernels::Activations EagleLayer::enqueue_head_rows(int rows) {
    device().to_activations(decoder_.normed_residual(norms_.head), rows, shape_.hidden, decoder_.input(),
                            hidden_stride());
    return decoder_.input();
}

void EagleLayer::enqueue_fused(int rows) {
    kernels::Backend& on = device();
    kernels::FusedMatmulOp op;
    op.product.weights = fc_->device_matrix();
    op.product.x = fused_;
    op.product.rows = rows;
    op.product.y = decoder_.residual();
    op.product.y_stride = shape_.hidden;
    op.product.bias = fc_bias_;
    op.norm = {.x = inputs(), .x_stride = 2 * shape_.hidden};
    on.fused_matmul(op);
    decoder_.attend_residual(0, 0, nullptr);
    decoder_.feed_forward(0);
}

void EagleLayer::enqueue_joined(int rows) {
    kernels::Backend& on = device();
    const int d = shape_.hidden, stride = kernels::padded_columns(2 * d);
    kernels::RmsNormOp norm;
    norm.x = inputs();
    norm.x_stride = 2 * d;
    norm.rows = rows;
    norm.width = d;
    norm.weight = norms_.input;
    norm.eps = shape_.norm_eps;
    norm.half = fused_;
    norm.half_stride = stride;
    norm.half_columns = d;
    on.rms_norm(norm);
    norm.x = inputs() + d;
    norm.weight = norms_.hidden;
    norm.half = on.at(fused_, d);
    norm.half_columns = stride - d;
    if (norms_.before_residual) {
        norm.y = decoder_.residual();
        norm.y_stride = d;
    } else {
        on.copy_rows({.from = norm.x,
                      .from_stride = 2 * d,
                      .count = rows,
                      .cols = d,
                      .to = decoder_.residual(),
                      .to_stride = d});
    }
    on.rms_norm(norm);
    decoder_.attend(0, 0, fused_);
    decoder_.feed_forward(0);
    if (norms_.output == nullptr) return;
    kernels::RmsNormOp last;
    last.x = decoder_.residual();
    last.y = decoder_.residual();
    last.x_stride = last.y_stride = d;
    last.rows = rows;
    last.width = d;
    last.weight = norms_.output;
    last.eps = shape_.norm_eps;
    on.rms_norm(last);
}

void EagleLayer::enqueue_decoder(int rows) {
    const int d = shape_.hidden, count = static_cast<int>(layers_.size());
    device().copy_rows({.from = inputs(),
                        .from_stride = 2 * d,
                        .count = rows,
                        .cols = d,
                        .to = decoder_.residual(),
                        .to_stride = d});
    for (int layer = 0; layer < count; ++layer)
        decoder_.run(layer, layer + 1 < count ? &layers_[layer + 1].qkv : lm_head_);
}

}  // namespace draftscope
