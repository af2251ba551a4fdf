#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/formats/model_config.h"

namespace draftscope {

/// The traits that distinguish a model family. A new family needs one row in the table in architecture.cpp.
struct Architecture {
    std::string_view name;      ///< general.architecture of GGUF files
    std::string_view hf_class;  ///< "architectures" in config.json
    bool permuted_qk;           ///< GGUF files store q/k rows for rotation of adjacent pairs
    bool qkv_bias;
    QkNorm qk_norm;
    bool post_norms;
};

/// Return null if the family is unknown.
const Architecture* architecture_by_name(std::string_view name);
const Architecture* architecture_by_hf_class(std::string_view hf_class);
/// Lists of the supported names for error messages: "llama, qwen2, ..." and "LlamaForCausalLM, ...".
std::string known_architectures();
std::string known_hf_classes();

/// Writes the family's traits into `config`.
void apply_architecture(const Architecture& architecture, ModelConfig& config);

/// Returns an error if the heads cannot share keys and values, or have an unsupported width.
Status check_head_sizes(const std::string& path, int heads, int kv_heads, int head_dim);

/// A tensor of a model: its GGUF name and its shape.
struct ModelTensor {
    std::string name;
    std::vector<std::int64_t> shape;
};

/// Returns every tensor of a model with these shapes, including the LM head unless it is tied. Excludes
/// rope_freqs.weight, which only GGUF files have.
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace draftscope
