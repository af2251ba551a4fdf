#pragma once

#include <span>

#include "engine/transformer/device_decoder.h"
#include "engine/transformer/device_logits.h"

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

    /// The same for trees that are grown there: rows of `batch` are placed with `step.there().width`
    /// ancestors each, `embeddings` [V, d] lies there. hidden_there() and aux_there() stay there. Asks and
    /// does not wait; the caller holds Device::busy().
    Status ask_trees(const DecoderBatch& batch, const float* embeddings, std::span<const int> aux_layers,
                     TreeStep& step, const RowQuestion& question, bool accept);
    const float* hidden_there() const { return hidden_.as<float>(); }  ///< [rows, d]
    const float* aux_there() const { return aux_.as<float>(); }        ///< [rows, aux_layers * d]

  private:
    bool reserve(int rows, int aux_width, bool logits);
    void ask_layers(int rows, std::span<const int> aux_layers, bool with_logits, int tag);

    DeviceDecoder decoder_;
    LayerShape shape_;
    int layers_ = 0;
    const float* output_norm_ = nullptr;
    const kernels::Matrix* lm_head_ = nullptr;
    kernels::DeviceBuffer hidden_, aux_;
    DeviceLogits logits_;
    kernels::TreeRows latest_;  ///< whose addresses graphs may name
};

}  // namespace draftscope
