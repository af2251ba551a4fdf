#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_file.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/gguf.h"
#include "engine/formats/rope_config.h"
#include "engine/formats/weight_source.h"
#include "engine/transformer/decoder_layer.h"
#include "engine/transformer/target.h"

namespace draftscope {

enum class EagleGeneration { eagle2, eagle3 };

/// Checkpoint layouts. They differ in where the config values are stored, in tensor names and in the meaning
/// of two values (docs/FORMATS.md).
enum class EagleLayout {
    official,     ///< SafeAILab: config.json, `layers.0.` (EAGLE-2) or `midlayer.` (EAGLE-3)
    specforge,    ///< SpecForge, SGLang, NVIDIA: the same names, aux layers under eagle_config
    speculators,  ///< speculators (vLLM, Red Hat): `layers.0.`, the layer under transformer_layer_config
    gguf,         ///< llama.cpp's architecture `eagle3`
};

/// How the norms of EAGLE-3 checkpoints differ.
struct EagleNorms {
    bool before_residual = false;  ///< the residual is taken after the hidden norm
    bool before_fc = false;        ///< one norm over all fused features before fc
    bool of_features = false;      ///< one norm per feature before fc
    bool output = false;           ///< the next level's hidden is the normed output
    bool head = true;              ///< the LM head reads the normed output
    std::string note;              ///< on `output`, unless an option sets it
};

/// An open EAGLE checkpoint.
struct EagleCheckpoint {
    EagleLayout layout = EagleLayout::official;
    EagleGeneration generation = EagleGeneration::eagle3;
    std::string verifier;   ///< the target named in the checkpoint; "" if none
    LayerShape shape;       ///< hidden = the drafter's hidden size d
    int target_hidden = 0;  ///< width of one target feature
    RopeConfig rotation;
    /// Layers whose input is captured; the number of layers is the output of the last one. EAGLE-2: none,
    /// which is the last hidden state after the final norm.
    std::vector<int> aux_layers;
    std::string aux_field;      ///< "FILE: FIELD" that names them; "" if none does
    int aux_offset = 0;         ///< of the layer less the field's number
    int own_vocab = 0;          ///< tokens that the drafter knows; 0 = not said
    int draft_vocab = 0;        ///< rows of its LM head by the config; 0 = not said
    int trained_positions = 0;  ///< 0 = not said
    EagleNorms norms;
    std::optional<bool> fc_bias;  ///< the config's value; published configs often omit it
    std::unique_ptr<WeightSource> weights;
    const TensorInfo* embedding = nullptr;  ///< the checkpoint's token embeddings; null = the target's
    Notes notes;
    kernels::RopeTable rope;  ///< covers the target's context length

    /// Returns the file's name of a tensor that official checkpoints call `name`, and marks it as used.
    /// "layers.0." means the layer in both generations. Any prefix is taken.
    std::string name(std::string_view official);
    /// Returns whether the file has this tensor, and marks its name as used.
    bool has(std::string_view official);
    /// Checks that every tensor is used or may be ignored.
    Status check_used() const;

    std::string outer_name(std::string_view official) const;
    std::string layer_prefix = "layers.0.";  ///< of this file
    std::set<std::string, std::less<>> used;
};

/// Returns the keys that may follow a path. rope and embeddings are the checkpoint's (own) or the target's.
/// EAGLE-2 has features=normed|raw, the last hidden state after or before the final norm. EAGLE-3 has
/// layers=1/12/21, recycle=raw|normed (the state that the next level gets), residual=raw|normed (where it
/// starts), head=own|target and d2t=offsets|tokens.
std::span<const std::string_view> eagle_options(EagleGeneration generation);
/// Opens a checkpoint given as "PATH" with options, and checks it against a target's config, except for the
/// rotation. Feature layers are not checked if `target.layers` is 0, which means not known.
Result<EagleCheckpoint> read_eagle_checkpoint(EagleGeneration generation, const std::string& drafter_source,
                                              const ModelConfig& target);
/// As above, with the angles of the rotation, and a check of the memory. Random weights have a source, too.
Result<EagleCheckpoint> open_eagle_checkpoint(EagleGeneration generation, const std::string& drafter_source,
                                              const Target& target);

/// Readers of the layouts. `target` is the target's config.
Status read_eagle_config(const JsonFile& file, const ModelConfig& target, EagleCheckpoint& out);
Status read_eagle_gguf(GgufFile file, const ModelConfig& target, EagleCheckpoint& out);

/// Loads the decoder layer; q/k/v take `qkv_inputs` columns. attn_norm stays empty.
Result<DecoderLayer> load_eagle_layer(kernels::Backend& backend, kernels::Precision precision,
                                      EagleCheckpoint& checkpoint, int qkv_inputs);

/// Returns the checkpoint's own embeddings. Tokens that it lacks have the target's, or zeros if its width
/// differs. Both arguments must outlive the table.
kernels::EmbeddingTable own_embeddings(const EagleCheckpoint& checkpoint, const Target& target);

}  // namespace draftscope
