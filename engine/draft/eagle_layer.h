#pragma once

#include <span>

#include "engine/round/arena.h"
#include "engine/transformer/decoder.h"
#include "kernels/embedding_table.h"

namespace draftscope {

/// The layer of an EAGLE drafter, or all layers of a draft model. set_fused(), set_joined() or set_decoder()
/// selects the form.
class EagleLayer {
  public:
    /// Uploads the layers' vectors and waits. Attention reads `input_width` values per row, d or 2d
    /// (EAGLE-3). Rope and layers must outlive this object.
    Status prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                   std::span<const DecoderLayer> layers, int input_width);
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
    /// A language model: the residual starts from the embedding, and no hidden is read. `head_norm` [d] is
    /// its final norm, in device memory.
    void set_decoder(const float* head_norm, const kernels::Matrix& lm_head);
    bool reads_hidden() const { return form_ != Form::decoder; }

    // Passes without waits in between. The caller holds Backend::submit_mutex().
    /// Allocates memory for passes of up to `rows` rows, for the rest of the step. Returns false if out of
    /// memory.
    bool reserve(RoundMemory& memory, int rows);
    float* inputs() const { return inputs_; }               ///< [rows, 2d] embedding, hidden
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
    enum class Form { fused, joined, decoder };
    void enqueue_fused(int rows);
    void enqueue_joined(int rows);
    void enqueue_decoder(int rows);

    Decoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layers_;
    Form form_ = Form::joined;
    const kernels::Matrix* fc_ = nullptr;  ///< EAGLE-2 only
    const float* fc_bias_ = nullptr;
    Norms norms_;
    const kernels::Matrix* lm_head_ = nullptr;  ///< follows the last of whole layers
    float* inputs_ = nullptr;
    kernels::Activations fused_;
};

/// The layers that compute the rows of trees, and the embeddings that rows start from.
class Backbone {
  public:
    virtual ~Backbone() = default;
    virtual const LayerShape& shape() const = 0;
    virtual int layers() const { return 1; }
    virtual kernels::EmbeddingTable& embeddings() = 0;  ///< of width d
    virtual kernels::KvType kv_type() const = 0;
    virtual std::size_t weight_bytes() const = 0;  ///< read by a pass
    /// The layers. Their inputs are [embedding; hidden], their outputs the next level's hidden.
    EagleLayer& layer() { return pass_; }

  protected:
    EagleLayer pass_;
};

}  // namespace draftscope
