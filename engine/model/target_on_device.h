#pragma once

#include <span>

#include "engine/model/device_decoder.h"
#include "engine/model/device_logits.h"

namespace draftscope {

/// A target's layers, final norm and LM head on a device: host rows in, host rows out, everything between
/// stays there.
class TargetOnDevice {
  public:
    /// `lm_head` and what DeviceDecoder::prepare() takes stay alive as long as this.
    Status prepare(kernels::Device& device, const LayerShape& shape, const kernels::RopeTable& rope,
                   std::span<const DecoderLayer> layers, std::span<const float> output_norm,
                   const kernels::Matrix& lm_head);
    bool ready() const { return decoder_.ready(); }
    /// Rows of `batch` from their embeddings [rows, d] to `hidden` [rows, d] and, where they are not null,
    /// `aux` [rows, aux_layers * d] and `logits` [rows, V]. With a question, the logits stay there, in
    /// logits(), and `answers` are what leaves.
    Status run(const DecoderBatch& batch, Rows<const float> embeddings, std::span<const int> aux_layers,
               float* hidden, float* aux, float* logits, const RowQuestion* question = nullptr,
               RowAnswers* answers = nullptr);
    DeviceLogits& logits() { return logits_; }

  private:
    bool reserve(int rows, int aux_width, bool logits);

    DeviceDecoder decoder_;
    LayerShape shape_;
    int layers_ = 0;
    const float* output_norm_ = nullptr;
    const kernels::Matrix* lm_head_ = nullptr;
    kernels::DeviceBuffer hidden_, aux_;
    DeviceLogits logits_;
};

}  // namespace draftscope
