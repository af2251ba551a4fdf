#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/model_config.h"

namespace draftscope::testing {

struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};
/// A safetensors file of F32 tensors.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

struct TinyEagleOptions {
    int heads = 2;
    int kv_heads = 1;
    int head_dim = 16;
    int ffn = 64;
    bool fc_bias = false;        ///< also said in config.json
    bool own_embedding = false;  ///< embed_tokens.weight in the checkpoint
};

/// Random EAGLE-2 weights for a target of `config`'s hidden size and vocabulary.
std::vector<NamedTensor> tiny_eagle2_tensors(std::uint64_t seed, const ModelConfig& config,
                                             const TinyEagleOptions& options = {});
/// Writes config.json and model.safetensors into `folder`, which is made.
Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed, const ModelConfig& config,
                         const TinyEagleOptions& options = {});
/// The same for the target that write_tiny_gguf() writes unless told otherwise.
Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed);
/// The config.json of such a checkpoint.
std::string tiny_eagle2_config(const ModelConfig& config, const TinyEagleOptions& options = {});

}  // namespace draftscope::testing
