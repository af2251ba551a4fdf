#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"

namespace draftscope {

/// What sets one model family apart. A new family is one row of the table in architecture.cpp.
struct Architecture {
    std::string_view name;      ///< general.architecture of GGUF files
    std::string_view hf_class;  ///< "architectures" in config.json
    bool permuted_qk;           ///< GGUF files store q/k rows for rotation of adjacent pairs
    bool qkv_bias;
    QkNorm qk_norm;
    bool post_norms;
};

/// Null when the family is not known.
const Architecture* architecture_by_name(std::string_view name);
const Architecture* architecture_by_hf_class(std::string_view hf_class);
/// "llama, qwen2, ..." and "LlamaForCausalLM, ..." for messages.
std::string known_architectures();
std::string known_hf_classes();

/// Writes the family's traits into `config`.
void apply_architecture(const Architecture& architecture, ModelConfig& config);

/// A tensor that a model has, under its GGUF name.
struct ModelTensor {
    std::string name;
    std::vector<std::int64_t> shape;
};

/// Every tensor of a model with these shapes, LM head included unless it is tied; rope_freqs.weight, which
/// only GGUF files have, is not.
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace draftscope
