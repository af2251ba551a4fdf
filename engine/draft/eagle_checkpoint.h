#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/target.h"
#include "engine/model/weight_source.h"

namespace draftscope {

/// A published EAGLE checkpoint, opened: config.json and model.safetensors of one folder.
struct EagleCheckpoint {
    std::string folder;
    LayerShape shape;
    float rope_theta = 10000.0f;
    std::vector<int> aux_layers;        ///< EAGLE-3: residual stream entering these layers, low to high
    bool norm_before_residual = false;  ///< EAGLE-3 variant: the residual is taken after the hidden norm
    std::optional<bool> fc_bias;        ///< what the config says; the published configs often do not
    std::unique_ptr<WeightSource> weights;
    const TensorInfo* embedding = nullptr;  ///< its own token embeddings; null = the target's
    kernels::RopeTable rope;                ///< over the target's context
};

/// Checks the config against the target: same hidden size and vocabulary.
Result<EagleCheckpoint> open_eagle_checkpoint(const std::string& folder, const Target& target);

/// The decoder layer under `prefix` ("layers.0."); q/k/v take `qkv_inputs` columns. attn_norm stays empty.
Result<DecoderLayer> load_eagle_layer(kernels::Exec& exec, kernels::Precision precision,
                                      const EagleCheckpoint& checkpoint, const std::string& prefix,
                                      int qkv_inputs);

/// Embeddings by the checkpoint's own table when it has one, else by the target's.
void embed_for_eagle(const EagleCheckpoint& checkpoint, const Target& target, std::span<const TokenId> tokens,
                     Rows<float> out);

}  // namespace draftscope
