#pragma once

#include <span>

#include "engine/transformer/decoder.h"
#include "engine/transformer/device_logits.h"
#include "kernels/embedding_table.h"

namespace draftscope {

/// A target's layers, final norm and LM head on a device, with all activations in device memory.
class TargetPass {
  public:
    /// Uploads the vectors; locks Backend::submit_mutex() itself. All spans, `rope` and `lm_head` must
    /// outlive this object.
    Status prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                   std::span<const DecoderLayer> layers, std::span<const float> output_norm,
                   const kernels::Matrix& lm_head);
    /// Runs the rows of `batch` from their `embeddings` [rows, d], in host memory. Writes `hidden` [rows, d],
    /// `aux` [rows, aux_layers * d] and `logits` [rows, V] to host memory. `logits` may be null, and so may
    /// `aux` without aux layers. Locks Backend::submit_mutex() and synchronizes.
    Status run(const DecoderBatch& batch, Rows<const float> embeddings, std::span<const int> aux_layers,
               float* hidden, float* aux, float* logits);
    DeviceLogits& logits() { return logits_; }

    /// Enqueues the same pass for the trees of `step`, up to the logits or best tokens that `query` needs.
    /// Then logits() answers it. On a device, rows of `batch` have `step.rows_on_device().width` ancestors
    /// each, and `step` has their positions. `embeddings` is loaded. The
    /// features below are in the device's memory. The caller holds Backend::submit_mutex().
    Status enqueue_trees(const DecoderBatch& batch, const kernels::EmbeddingTable& embeddings,
                         std::span<const int> aux_layers, const TreeStep& step, const LogitsQuery& query);
    /// Uploads the layout of the rows of enqueue_trees(), which then uploads nothing. It is called before the
    /// trees are drafted, so that the device does not wait for a transfer between drafts and verification.
    Status upload_layout(const DecoderBatch& batch) { return decoder_.upload_layouts({&batch, 1}); }
    const float* device_hidden() const { return hidden_.as<float>(); }  ///< [rows, d]
    const float* device_aux() const { return aux_.as<float>(); }        ///< [rows, aux_layers * d]

  private:
    bool reserve(int rows, int aux_width, bool logits);
    void use_places(const kernels::TreeRows& trees);
    void enqueue_layers(int rows, std::span<const int> aux_layers, bool head_input, bool with_logits,
                        int tag);

    Decoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layers_;
    const float* output_norm_ = nullptr;
    const kernels::Matrix* lm_head_ = nullptr;
    kernels::DeviceBuffer hidden_, aux_;
    DeviceLogits logits_;
    std::vector<int> extra_;    ///< distinguishes the graphs of passes
    kernels::TreeRows latest_;  ///< graphs may contain its addresses
};

}  // namespace draftscope
