#pragma once

#include <span>

#include "engine/round/arena.h"
#include "engine/transformer/decoder.h"

namespace draftscope {

/// The layer of an EAGLE drafter. Either set_fused() or set_joined() selects its form.
class EagleLayer {
  public:
    /// Uploads the layer's vectors and waits. Attention reads `input_width` values per row, d (EAGLE-2) or
    /// 2d. Rope and layer must outlive this object.
    Status prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                   const DecoderLayer& layer, int input_width);
    kernels::Backend& device() { return decoder_.device(); }
    const float* keep(std::span<const float> values);

    /// EAGLE-2: residual = fc [embedding; hidden] (+ bias), then the layer. `bias` [d] is in device memory or
    /// null.
    void set_fused(const kernels::Matrix& fc, const float* bias);
    struct Norms {
        const float* input = nullptr;   ///< [d], of the embedding
        const float* hidden = nullptr;  ///< [d], of the hidden
        const float* output = nullptr;  ///< [d], of the output, or null
        const float* head = nullptr;    ///< [d], of the output as input of the LM head, or null
        bool before_residual = false;   ///< the residual starts from the normed hidden
    };
    /// EAGLE-3: attention reads [norm(embedding); norm(hidden)], and the residual starts from the hidden.
    void set_joined(const Norms& norms);

    // Passes without waits in between. The caller holds Backend::submit_mutex().
    /// Allocates memory for passes of up to `rows` rows, for the rest of the step. Returns false if out of
    /// memory.
    bool reserve(RoundMemory& memory, int rows);
    float* inputs() const { return inputs_; }               ///< [rows, 2d]
    float* outputs() const { return decoder_.residual(); }  ///< [rows, d], of the latest pass
    int hidden_stride() const { return decoder_.hidden_stride(); }
    /// Uploads the layouts of passes that follow; see Decoder::upload_layouts().
    Status upload_layouts(std::span<const DecoderBatch> batches) { return decoder_.upload_layouts(batches); }
    /// Enqueues a pass over inputs(). `ancestor_slots`, in the backend's memory, replaces the slots of the
    /// batch; null = its rows have none.
    Status enqueue(const DecoderBatch& batch, const std::int32_t* ancestor_slots);
    /// Enqueues and returns the first `rows` outputs as input of the LM head, [rows, hidden_stride()].
    kernels::Activations enqueue_head_rows(int rows);

  private:
    void enqueue_fused(int rows);
    void enqueue_joined(int rows);

    Decoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layer_;
    const kernels::Matrix* fc_ = nullptr;  ///< EAGLE-2 only
    const float* fc_bias_ = nullptr;
    Norms norms_;
    float* inputs_ = nullptr;
    kernels::Activations fused_;
};

}  // namespace draftscope
