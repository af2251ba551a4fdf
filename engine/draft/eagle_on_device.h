#pragma once

#include <span>

#include "engine/model/device_decoder.h"

namespace draftscope {

/// The layer of an EAGLE drafter on a device: host rows in and out, all between them stays there.
class EagleOnDevice {
  public:
    /// `input_width`: what the layer's attention reads, d (EAGLE-2) or 2d. All arguments stay alive.
    Status prepare(kernels::Device& device, const LayerShape& shape, const kernels::RopeTable& rope,
                   const DecoderLayer& layer, int input_width);
    bool ready() const { return decoder_.ready(); }
    kernels::Device& device() { return decoder_.device(); }
    const float* keep(std::span<const float> values);

    /// EAGLE-2: residual = fc [embedding; hidden] (+ bias), then the layer.
    void run_fused(const DecoderBatch& batch, Rows<const float> inputs, const kernels::Matrix& fc,
                   const float* bias, Rows<float> out);
    struct Norms {
        const float* input = nullptr;   ///< [d], on the embedding
        const float* hidden = nullptr;  ///< [d], on the hidden
        const float* output = nullptr;  ///< [d] on what is given out, or null
        bool before_residual = false;   ///< the residual starts from the normed hidden
    };
    /// EAGLE-3: attention reads [norm(embedding); norm(hidden)], the residual starts from the hidden.
    void run_joined(const DecoderBatch& batch, Rows<const float> inputs, const Norms& norms, Rows<float> out);

  private:
    bool begin(const DecoderBatch& batch, Rows<const float> inputs);
    void end(Rows<float> out);

    DeviceDecoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layer_;
    kernels::DeviceBuffer inputs_, fused_;
    std::vector<float> staging_;
};

}  // namespace draftscope
