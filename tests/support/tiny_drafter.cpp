#include "tests/support/tiny_drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/rng.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_model.h"

namespace draftscope::testing {

TinyEagle2::TinyEagle2(const ModelConfig& target, std::uint64_t seed) {
    TinyEagleOptions options{.heads = target.heads, .kv_heads = target.kv_heads, .head_dim = target.head_dim};
    std::vector<NamedTensor> tensors = tiny_eagle2_tensors(seed, target, options);
    for (NamedTensor& tensor : tensors) {
        const bool is_norm = tensor.shape.size() == 1, is_fc = tensor.name == "fc.weight";
        for (float& value : tensor.values) value *= is_norm ? 1.0f : is_fc ? 0.3f : 0.6f;
        const auto width = static_cast<std::size_t>(tensor.shape.back());
        for (std::size_t r = 0; is_fc && r < tensor.values.size() / width; ++r)
            tensor.values[r * width + r] += 1.0f;
    }
    const Status written = write_safetensors(folder_.file("model.safetensors"), tensors);
    if (!written.ok()) ADD_FAILURE() << written.error().message;
    std::ofstream(folder_.file("config.json")) << tiny_eagle2_config(target, options);
}

namespace {

/// Normal numbers of variance 1 / (columns of the tensor), times `scale`.
NamedTensor random_tensor(const std::string& name, std::vector<std::int64_t> shape, Rng& rng,
                          double scale = 1.0) {
    NamedTensor tensor{name, std::move(shape), {}};
    std::int64_t size = 1;
    for (const std::int64_t side : tensor.shape) size *= side;
    const double spread = scale / std::sqrt(static_cast<double>(tensor.shape.back()));
    for (std::int64_t i = 0; i < size; ++i)
        tensor.values.push_back(static_cast<float>(rng.normal() * spread));
    return tensor;
}

NamedTensor ones(const std::string& name, std::int64_t size) {
    return {name, {size}, std::vector<float>(static_cast<std::size_t>(size), 1.0f)};
}

void write_checkpoint(const ScratchFolder& folder, const std::vector<NamedTensor>& tensors,
                      const std::string& config) {
    const Status written = write_safetensors(folder.file("model.safetensors"), tensors);
    if (!written.ok()) ADD_FAILURE() << written.error().message;
    std::ofstream(folder.file("config.json")) << config;
}

}  // namespace

TinyDecodingHeads::TinyDecodingHeads(const ModelConfig& target, bool uses_path, std::uint64_t seed, int heads,
                                     bool whole) {
    Rng rng(seed);
    std::vector<NamedTensor> tensors;
    for (int i = 0; i < heads; ++i) {
        const std::int64_t inputs = uses_path ? (i + 2) * target.hidden : target.hidden;
        const std::string name = std::to_string(i) + ".0.linear";
        tensors.push_back(random_tensor(name + ".weight", {target.hidden, inputs}, rng, 2.0));
        tensors.push_back(random_tensor(name + ".bias", {target.hidden}, rng));
        if (!whole) continue;
        const std::string head = std::to_string(i);
        const auto layer = [&](const std::string& of, std::int64_t outputs, std::int64_t columns) {
            tensors.push_back(random_tensor(head + of + ".weight", {outputs, columns}, rng, 2.0));
            tensors.push_back(random_tensor(head + of + ".bias", {outputs}, rng));
        };
        layer(".0.res_connection", target.hidden, inputs);
        layer(".1.linear", target.hidden, target.hidden);
        layer(".2", target.vocab, target.hidden);
    }
    write_checkpoint(folder_, tensors,
                     fmt::format(R"({{"hidden_size": {}, "vocab_size": {}}})", target.hidden, target.vocab));
}

TinyEagle3::TinyEagle3(const ModelConfig& target, std::uint64_t seed, int lm_head_rows, bool normed) {
    Rng rng(seed);
    const int d = target.hidden, hd = target.head_dim;
    const std::string layer = "midlayer.";
    std::vector<NamedTensor> tensors = {
        random_tensor("fc.weight", {d, 3 * d}, rng),
        ones(layer + "hidden_norm.weight", d),
        ones(layer + "input_layernorm.weight", d),
        ones(layer + "post_attention_layernorm.weight", d),
        random_tensor(layer + "self_attn.q_proj.weight", {target.heads * hd, 2 * d}, rng),
        random_tensor(layer + "self_attn.k_proj.weight", {target.kv_heads * hd, 2 * d}, rng),
        random_tensor(layer + "self_attn.v_proj.weight", {target.kv_heads * hd, 2 * d}, rng, 4.0),
        random_tensor(layer + "self_attn.o_proj.weight", {d, target.heads * hd}, rng),
        random_tensor(layer + "mlp.gate_proj.weight", {target.ffn, d}, rng),
        random_tensor(layer + "mlp.up_proj.weight", {target.ffn, d}, rng),
        random_tensor(layer + "mlp.down_proj.weight", {d, target.ffn}, rng),
        ones("norm.weight", d),
    };
    if (lm_head_rows > 0) tensors.push_back(random_tensor("lm_head.weight", {lm_head_rows, d}, rng, 4.0));
    for (int i = 0; normed && i < 3; ++i)
        tensors.push_back(random_tensor(fmt::format("fc_norm.{}.weight", i), {d}, rng, 4.0));
    write_checkpoint(
        folder_, tensors,
        fmt::format(R"({{"fc_norm": {}, "hidden_size": {}, "vocab_size": {}, "num_attention_heads": {},
"num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {}, "rms_norm_eps": 1e-5,
"eagle_config": {{"eagle_aux_hidden_state_layer_ids": [0, {}, {}],
"aux_meaning": "hidden state entering these layers"}}}})",
                    normed, d, target.vocab, target.heads, target.kv_heads, hd, target.ffn, target.layers / 2,
                    target.layers - 1));
}

TinyDraftModel::TinyDraftModel(const ModelConfig& target, std::uint64_t seed) {
    const TinyModelOptions options{.hidden = target.hidden, .layers = 1, .heads = 2, .kv_heads = 1};
    const Status written = write_tiny_gguf(path(), seed, options);
    if (!written.ok()) ADD_FAILURE() << written.error().message;
}

}  // namespace draftscope::testing
