#include "engine/formats/architecture.h"

#include <fmt/format.h>

#include <array>

namespace draftscope {
namespace {

constexpr std::array architectures = {
    Architecture{"llama", "LlamaForCausalLM", true, false, QkNorm::none, false},
    Architecture{"qwen2", "Qwen2ForCausalLM", false, true, QkNorm::none, false},
    Architecture{"qwen3", "Qwen3ForCausalLM", false, false, QkNorm::per_head, false},
    Architecture{"olmo2", "Olmo2ForCausalLM", false, false, QkNorm::full, true},
};

/// Classes whose computation equals another family's. Config options beyond that family are rejected in
/// hf_folder.cpp.
struct Alias {
    std::string_view hf_class, name;
};
constexpr std::array aliases = {Alias{"MistralForCausalLM", "llama"}};

std::string listed(std::string_view Architecture::*field) {
    std::string out;
    for (const Architecture& architecture : architectures)
        out += (out.empty() ? "" : ", ") + std::string(architecture.*field);
    return out;
}

const Architecture* with(std::string_view Architecture::*field, std::string_view value) {
    for (const Architecture& architecture : architectures) {
        if (architecture.*field == value) return &architecture;
    }
    return nullptr;
}

void add_layer(const ModelConfig& config, int layer, std::vector<ModelTensor>& out) {
    const std::int64_t d = config.hidden;
    const std::int64_t q = std::int64_t{config.heads} * config.head_dim;
    const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
        out.push_back({fmt::format("blk.{}.{}", layer, name), std::move(shape)});
    };
    add(config.post_norms ? "post_attention_norm.weight" : "attn_norm.weight", {d});
    add("attn_q.weight", {q, d});
    add("attn_k.weight", {kv, d});
    add("attn_v.weight", {kv, d});
    if (config.qkv_bias) {
        add("attn_q.bias", {q});
        add("attn_k.bias", {kv});
        add("attn_v.bias", {kv});
    }
    if (config.qk_norm != QkNorm::none) {
        add("attn_q_norm.weight", {config.q_norm_width()});
        add("attn_k_norm.weight", {config.k_norm_width()});
    }
    add("attn_output.weight", {d, q});
    add(config.post_norms ? "post_ffw_norm.weight" : "ffn_norm.weight", {d});
    add("ffn_gate.weight", {config.ffn, d});
    add("ffn_up.weight", {config.ffn, d});
    add("ffn_down.weight", {d, config.ffn});
}

}  // namespace

const Architecture* architecture_by_name(std::string_view name) {
    return with(&Architecture::name, name);
}
const Architecture* architecture_by_hf_class(std::string_view hf_class) {
    for (const Alias& alias : aliases) {
        if (alias.hf_class == hf_class) return architecture_by_name(alias.name);
    }
    return with(&Architecture::hf_class, hf_class);
}
std::string known_architectures() {
    return listed(&Architecture::name);
}
std::string known_hf_classes() {
    std::string out = listed(&Architecture::hf_class);
    for (const Alias& alias : aliases) out += ", " + std::string(alias.hf_class);
    return out;
}

Status check_head_sizes(const std::string& path, int heads, int kv_heads, int head_dim) {
    if (heads % kv_heads != 0)
        return bad_input("{}: {} heads cannot share {} key/value heads", path, heads, kv_heads);
    if (head_dim % 2 != 0 || head_dim < 2)
        return bad_input("{}: heads are {} wide, expected an even width", path, head_dim);
    if (std::int64_t{heads} * head_dim > max_extent)
        return bad_input("{}: {} heads of {} are wider than supported", path, heads, head_dim);
    return {};
}

void apply_architecture(const Architecture& architecture, ModelConfig& config) {
    config.architecture = architecture.name;
    config.qkv_bias = architecture.qkv_bias;
    config.qk_norm = architecture.qk_norm;
    config.post_norms = architecture.post_norms;
}

std::vector<ModelTensor> model_tensors(const ModelConfig& config) {
    std::vector<ModelTensor> out;
    out.push_back({"token_embd.weight", {config.vocab, config.hidden}});
    out.push_back({"output_norm.weight", {config.hidden}});
    if (!config.tied_head) out.push_back({"output.weight", {config.vocab, config.hidden}});
    for (int layer = 0; layer < config.layers; ++layer) add_layer(config, layer, out);
    return out;
}

}  // namespace draftscope
