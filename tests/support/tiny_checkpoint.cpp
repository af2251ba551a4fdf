#include "tests/support/tiny_checkpoint.h"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/tiny_model.h"

namespace draftscope::testing {
namespace {

std::int64_t elements(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
    std::string header = "{";
    std::int64_t offset = 0;
    for (const NamedTensor& tensor : tensors) {
        if (elements(tensor.shape) != static_cast<std::int64_t>(tensor.values.size())) {
            return failed("{}: {} values do not fill the shape", tensor.name, tensor.values.size());
        }
        const std::int64_t end = offset + 4 * elements(tensor.shape);
        header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                              offset == 0 ? "" : ",", tensor.name, fmt::join(tensor.shape, ","), offset, end);
        offset = end;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::ofstream file(path, std::ios::binary);
    const std::uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    for (const NamedTensor& tensor : tensors) {
        file.write(reinterpret_cast<const char*>(tensor.values.data()),
                   static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
    }
    if (!file.flush()) return failed("{}: cannot be written", path);
    return {};
}

std::vector<NamedTensor> tiny_eagle2_tensors(std::uint64_t seed, const ModelConfig& config,
                                             const TinyEagleOptions& options) {
    std::mt19937_64 rng(seed);
    const auto uniform = [&] { return static_cast<float>(rng() >> 40) * 0x1p-23f - 1.0f; };
    const int d = config.hidden;
    std::vector<NamedTensor> tensors;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float middle,
                         float spread) {
        NamedTensor tensor{name, std::move(shape), {}};
        tensor.values.resize(elements(tensor.shape));
        for (float& value : tensor.values) value = middle + spread * uniform();
        tensors.push_back(std::move(tensor));
    };
    const auto matrix = [&](const std::string& name, int rows, int cols) {
        add(name, {rows, cols}, 0.0f, 1.7f / std::sqrt(static_cast<float>(cols)));
    };
    matrix("fc.weight", d, 2 * d);
    if (options.fc_bias) add("fc.bias", {d}, 0.0f, 0.5f);
    const std::string attention = "layers.0.self_attn.";
    matrix(attention + "q_proj.weight", options.heads * options.head_dim, d);
    matrix(attention + "k_proj.weight", options.kv_heads * options.head_dim, d);
    matrix(attention + "v_proj.weight", options.kv_heads * options.head_dim, d);
    matrix(attention + "o_proj.weight", d, options.heads * options.head_dim);
    matrix("layers.0.mlp.gate_proj.weight", options.ffn, d);
    matrix("layers.0.mlp.up_proj.weight", options.ffn, d);
    matrix("layers.0.mlp.down_proj.weight", d, options.ffn);
    add("layers.0.post_attention_layernorm.weight", {d}, 1.0f, 0.2f);
    if (options.has_embedding) add("embed_tokens.weight", {config.vocab, d}, 0.0f, 1.0f);
    return tensors;
}

std::string tiny_eagle2_config(const ModelConfig& config, const TinyEagleOptions& options) {
    return fmt::format(
        R"({{"model_type": "llama", "hidden_size": {}, "intermediate_size": {}, "num_attention_heads": {},
 "num_key_value_heads": {}, "head_dim": {}, "num_hidden_layers": 1, "vocab_size": {}, "rms_norm_eps": 1e-05,
 "rope_theta": 20000.0, "bias": {}}}
)",
        config.hidden, options.ffn, options.heads, options.kv_heads, options.head_dim, config.vocab,
        options.fc_bias ? "true" : "false");
}

Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed, const ModelConfig& config,
                         const TinyEagleOptions& options) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return failed("{}: {}", folder, error.message());
    std::ofstream(folder + "/config.json") << tiny_eagle2_config(config, options);
    return write_safetensors(folder + "/model.safetensors", tiny_eagle2_tensors(seed, config, options));
}

Status write_tiny_eagle2(const std::string& folder, std::uint64_t seed) {
    ModelConfig config;
    config.hidden = TinyModelOptions().hidden;
    config.vocab = tiny_gguf_vocab();
    return write_tiny_eagle2(folder, seed, config);
}

}  // namespace draftscope::testing
