#pragma once

#include <span>

#include "engine/transformer/device_decoder.h"

namespace draftscope {

/// The layer of an EAGLE drafter on a device. One of set_fused() and set_joined() says what it is.
class EagleOnDevice {
  public:
    /// `input_width`: what the layer's attention reads, d (EAGLE-2) or 2d. All arguments stay alive.
    Status prepare(kernels::Device& device, const LayerShape& shape, const kernels::RopeTable& rope,
                   const DecoderLayer& layer, int input_width);
    bool ready() const { return decoder_.ready(); }
    kernels::Device& device() { return decoder_.device(); }
    const float* keep(std::span<const float> values);

    /// EAGLE-2: residual = fc [embedding; hidden] (+ bias), then the layer.
    void set_fused(const kernels::Matrix& fc, const float* bias);
    struct Norms {
        const float* input = nullptr;   ///< [d], on the embedding
        const float* hidden = nullptr;  ///< [d], on the hidden
        const float* output = nullptr;  ///< [d] on what is given out, or null
        const float* head = nullptr;    ///< [d] on what the LM head reads of that, or null
        bool before_residual = false;   ///< the residual starts from the normed hidden
    };
    /// EAGLE-3: attention reads [norm(embedding); norm(hidden)], the residual starts from the hidden.
    void set_joined(const Norms& norms);

    /// A pass from host rows [rows, 2d] to host rows [rows, d]; all between them stays there.
    void run(const DecoderBatch& batch, Rows<const float> inputs, Rows<float> out);

    // Passes that follow each other without the host. The caller holds Device::busy().
    /// Memory for passes of up to `rows` rows; false when there is none.
    bool make_room(int rows);
    /// To be called when `tails` have moved.
    void forget_graphs() { decoder_.forget_graphs(); }
    float* inputs() const { return inputs_.as<float>(); }   ///< [rows, 2d]
    float* outputs() const { return decoder_.residual(); }  ///< [rows, d], of the latest pass
    int hidden_stride() const { return decoder_.hidden_stride(); }
    /// A pass over inputs(). The rows' ancestors are `tails`, an array there; `tag` differs where `tails`
    /// does.
    Status ask(const DecoderBatch& batch, const std::int32_t* ancestor_slots, int tag);
    /// A pass over inputs() of rows that only see slots before them, as run() does it.
    Status ask_chain(const DecoderBatch& batch);
    /// The first `rows` outputs as the LM head reads them, [rows, hidden_stride()].
    const kernels::half_t* ask_head_rows(int rows);

  private:
    bool begin(const DecoderBatch& batch, Rows<const float> inputs);
    void end(Rows<float> out);
    void ask_layer(int rows);
    void ask_fused(int rows);
    void ask_joined(int rows);

    DeviceDecoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layer_;
    const kernels::Matrix* fc_ = nullptr;  ///< of EAGLE-2
    const float* fc_bias_ = nullptr;
    Norms norms_;
    kernels::DeviceBuffer inputs_, fused_;
    std::vector<float> staging_;
};

}  // namespace draftscope
