#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/device_embeddings.h"
#include "engine/model/gguf.h"
#include "engine/model/json_file.h"
#include "engine/model/target.h"
#include "engine/model/weight_source.h"

namespace draftscope {

enum class EagleGeneration { eagle2, eagle3 };

/// How checkpoints are laid out; they differ in where the numbers stand, in names and in what two numbers
/// mean (docs/FORMATS.md).
enum class EagleLayout {
    official,     ///< SafeAILab: config.json, `layers.0.` (EAGLE-2) or `midlayer.` (EAGLE-3)
    specforge,    ///< SpecForge, SGLang, NVIDIA: the same names, aux layers under eagle_config
    speculators,  ///< speculators (vLLM, Red Hat): `layers.0.`, the layer under transformer_layer_config
    gguf,         ///< llama.cpp's architecture eagle3
};

/// A published EAGLE checkpoint, opened.
struct EagleCheckpoint {
    EagleLayout layout = EagleLayout::official;
    std::string verifier;   ///< the target it says it was made for; "" when it does not say
    LayerShape shape;       ///< hidden = the drafter's own d
    int target_hidden = 0;  ///< width of one target feature
    float rope_theta = 10000.0f;
    std::vector<float> rope_divisors;  ///< head_dim / 2; empty = none
    std::vector<int> aux_layers;       ///< EAGLE-3: residual stream entering these layers, low to high
    // EAGLE-3 variants.
    bool norm_before_residual = false;  ///< the residual is taken after the hidden norm
    bool norm_before_fc = false;        ///< one norm over all fused features before fc
    bool fc_norm = false;               ///< a norm per feature before fc
    bool norm_output = false;           ///< the next level's hidden is the normed output
    std::optional<bool> fc_bias;        ///< what the config says; the published configs often do not
    std::unique_ptr<WeightSource> weights;
    const TensorInfo* embedding = nullptr;  ///< its own token embeddings; null = the target's
    kernels::RopeTable rope;                ///< over the target's context

    /// The file's name of a tensor that official checkpoints call `name` ("layers.0." for the layer in both
    /// generations), noted as used.
    std::string name(std::string_view official);
    bool has(std::string_view official);
    /// Every tensor was asked for or means nothing; an unknown one would be a variant that is not computed.
    Status nothing_left() const;

    std::string layer_prefix = "layers.0.";  ///< in this file
    std::set<std::string, std::less<>> used;
};

/// `place` is "PATH" or "PATH,rope=target" (rotate as the target does instead of as the checkpoint says).
/// Checks it against the target.
Result<EagleCheckpoint> open_eagle_checkpoint(EagleGeneration generation, const std::string& place,
                                              const Target& target);

/// What the layouts' own readers fill in. `target` is the target's config.
Status read_eagle_config(const JsonFile& file, const ModelConfig& target, EagleCheckpoint& out);
Status read_eagle_gguf(GgufFile file, const ModelConfig& target, EagleCheckpoint& out);

/// The decoder layer; q/k/v take `qkv_inputs` columns. attn_norm stays empty.
Result<DecoderLayer> load_eagle_layer(kernels::Exec& exec, kernels::Precision precision,
                                      EagleCheckpoint& checkpoint, int qkv_inputs);

/// Embeddings by the checkpoint's own table when it has one, else by the target's.
void embed_for_eagle(const EagleCheckpoint& checkpoint, const Target& target, std::span<const TokenId> tokens,
                     Rows<float> out);
/// The same of all tokens, on a device: the target's there, or `own`, which is then the checkpoint's. Null
/// when there is no room. The caller holds Device::busy().
const float* eagle_embeddings_there(const EagleCheckpoint& checkpoint, const Target& target,
                                    kernels::Device& device, DeviceEmbeddings& own);

}  // namespace draftscope
