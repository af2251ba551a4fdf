#pragma once

#include <memory>
#include <span>
#include <utility>

#include "base/result.h"
#include "engine/draft/drafter.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/eagle_layer.h"

namespace draftscope {

/// The model of one EAGLE generation: how target features enter, and the layer. A drafter row pairs the
/// hidden of a token with the embedding of the *next* token; d is the drafter's hidden size.
class EagleModel : public Backbone {
  public:
    const EagleCheckpoint& checkpoint() const { return checkpoint_; }
    const LayerShape& shape() const override { return checkpoint_.shape; }
    virtual std::span<const int> aux_layers() const { return {}; }
    virtual int feature_width() const = 0;  ///< width of the rows that enqueue_features() reads
    kernels::EmbeddingTable& embeddings() override {
        return checkpoint_.embedding == nullptr ? target_.embeddings() : own_embeddings_;
    }
    virtual const kernels::Matrix* own_lm_head() const { return nullptr; }
    /// Target id of each row of own_lm_head(), ascending; empty = row i is token i.
    virtual std::span<const TokenId> own_lm_head_ids() const { return {}; }
    virtual std::size_t feature_weight_bytes() const { return 0; }  ///< as in Drafter
    kernels::KvType kv_type() const override { return kv_type_for(layer_.qkv.precision()); }
    /// Converts target features of verified slots, [rows, feature_width()], to hiddens in layer()'s inputs.
    /// They are of the target's last hidden states, or of aux_layers(). The caller holds
    /// Backend::submit_mutex().
    virtual void enqueue_features(const float* d_features, int rows) = 0;

  protected:
    EagleModel(EagleCheckpoint checkpoint, const Target& target)
        : checkpoint_(std::move(checkpoint)),
          target_(target),
          own_embeddings_(own_embeddings(checkpoint_, target)) {}

    EagleCheckpoint checkpoint_;
    const Target& target_;
    DecoderLayer layer_;
    kernels::Matrix fc_;  ///< [d, inputs of the generation]

  private:
    kernels::EmbeddingTable own_embeddings_;  ///< used if the checkpoint has its own
};

/// Creates the EAGLE-2/EAGLE-3 drafter around a model (EAGLE-2, arXiv 2406.16858, sections 4.1 and 4.2).
/// `name` is used in messages.
std::unique_ptr<Drafter> make_eagle_drafter(std::unique_ptr<EagleModel> model, std::string_view name);

}  // namespace draftscope
