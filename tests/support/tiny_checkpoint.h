#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/formats/model_config.h"

namespace draftscope::testing {

/// A tensor for write_safetensors().
struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};
/// Writes a safetensors file of F32 tensors.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

struct TinyEagleOptions {
    int heads = 2;
    int kv_heads = 1;
    int head_dim = 16;
    int ffn = 64;
    bool fc_bias = false;        ///< also set in config.json
    bool has_embedding = false;  ///< the checkpoint contains embed_tokens.weight
};

/// Returns random EAGLE-2 weights for a target of `config`'s hidden size and vocabulary.
std::vector<NamedTensor> tiny_eagle2_tensors(std::uint64_t seed, const ModelConfig& config,
                                             const TinyEagleOptions& options = {});
/// Creates `folder` and writes config.json and model.safetensors to it.
Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed, const ModelConfig& config,
                         const TinyEagleOptions& options = {});
/// As above, for the target that write_tiny_gguf() writes by default.
Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed);
/// Returns the config.json of such a checkpoint.
std::string tiny_eagle2_config(const ModelConfig& config, const TinyEagleOptions& options = {});

}  // namespace draftscope::testing
