#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/round/arena.h"
#include "engine/transformer/decoder.h"
#include "engine/transformer/kv_cache.h"
#include "kernels/embedding_table.h"

namespace draftscope {

/// Where a pass leaves its results, in the backend's memory.
struct PassOutputs {
    float* hidden = nullptr;  ///< [rows, d], after the final norm
    float* aux = nullptr;     ///< [rows, aux_layers * d]; null without aux layers
    float* logits = nullptr;  ///< [rows, V]; null = not computed
};

/// A forward pass whose rows are in the backend's memory: trees of several sequences, as masks. The rows of a
/// tree are adjacent, in the order of `trees`.
struct TreePass {
    struct Tree {
        KvCache* cache = nullptr;   ///< of its sequence
        int nodes = 0, levels = 0;  ///< `levels`: below the root
    };
    std::span<const Tree> trees;
    kernels::TreeRows rows;  ///< tokens, positions and ancestors
    std::span<const int> aux_layers;
    PassOutputs outputs;
    /// Over the LM head, if `outputs` has no logits; the target sets its operands.
    kernels::MatmulTopKOp best;
};

/// A target's layers, final norm and LM head, with all activations in the backend's memory.
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

    /// Enqueues a pass over the rows of `batch`, which have pass.rows.width ancestors each; `pass` has the
    /// arrays that replace theirs. `embeddings` is loaded. The caller holds Backend::submit_mutex().
    Status enqueue(const DecoderBatch& batch, const kernels::EmbeddingTable& embeddings,
                   const TreePass& pass);
    /// Uploads the layout of the rows of enqueue(), which then uploads nothing.
    Status upload_layout(const DecoderBatch& batch) { return decoder_.upload_layouts({&batch, 1}); }

  private:
    /// Passes whose row positions are in different memory, or that compute other parts.
    enum class Kind { layers, with_logits, trees };
    void enqueue_layers(int rows, std::span<const int> aux_layers, const PassOutputs& outputs, Kind kind);

    Decoder decoder_;
    LayerShape shape_;
    std::span<const DecoderLayer> layers_;
    const float* output_norm_ = nullptr;
    const kernels::Matrix* lm_head_ = nullptr;
    RoundArena memory_;              ///< of run()
    std::vector<std::int64_t> key_;  ///< distinguishes the graphs of passes
};

}  // namespace draftscope
