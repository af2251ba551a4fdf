#include "engine/draft/synthetic_drafter.h"

#include "engine/formats/synthetic_model.h"

namespace draftscope {
namespace {

Status check_target(const std::string& path, const Target& target) {
    if (is_synthetic_model(target.path()) && path == target.path()) return {};
    return bad_input(
        "drafter '{}': a random drafter needs the synthetic target of the same name, but the target is {}",
        path, target.path());
}

}  // namespace

bool is_synthetic_drafter(std::string_view path) {
    return is_synthetic_model(path);
}

Status make_synthetic_eagle(EagleGeneration generation, const std::string& path, const Target& target,
                            EagleCheckpoint& out) {
    DS_TRY(check_target(path, target));
    const ModelConfig& config = target.config();
    LayerShape& shape = out.shape;
    shape = {config.hidden,  config.heads, config.kv_heads, config.head_dim, synthetic_drafter_ffn(path),
             config.norm_eps};
    out.target_hidden = config.hidden;
    out.rotation.theta = config.rotation.theta;
    const std::int64_t d = config.hidden, ffn = shape.ffn;
    const bool eagle3 = generation == EagleGeneration::eagle3;
    const std::int64_t inputs = eagle3 ? 2 * d : d;
    std::vector<ModelTensor> tensors = {
        {"fc.weight", {d, eagle3 ? 3 * d : 2 * d}},
        {"layers.0.self_attn.q_proj.weight", {shape.q_width(), inputs}},
        {"layers.0.self_attn.k_proj.weight", {shape.kv_width(), inputs}},
        {"layers.0.self_attn.v_proj.weight", {shape.kv_width(), inputs}},
        {"layers.0.self_attn.o_proj.weight", {d, shape.q_width()}},
        {"layers.0.mlp.gate_proj.weight", {ffn, d}},
        {"layers.0.mlp.up_proj.weight", {ffn, d}},
        {"layers.0.mlp.down_proj.weight", {d, ffn}},
        {"layers.0.post_attention_layernorm.weight", {d}},
    };
    if (eagle3) {
        tensors.push_back({"layers.0.hidden_norm.weight", {d}});
        tensors.push_back({"layers.0.input_layernorm.weight", {d}});
        tensors.push_back({"norm.weight", {d}});
    }
    out.weights = make_synthetic_weights(path, tensors);
    return {};
}

Result<std::unique_ptr<WeightSource>> make_synthetic_decoding_heads(const std::string& path,
                                                                    const Target& target, int heads,
                                                                    bool uses_path) {
    DS_TRY(check_target(path, target));
    const std::int64_t d = target.config().hidden;
    std::vector<ModelTensor> tensors;
    for (int i = 0; i < heads; ++i) {
        tensors.push_back({fmt::format("{}.0.linear.weight", i), {d, uses_path ? (i + 2) * d : d}});
        tensors.push_back({fmt::format("{}.0.linear.bias", i), {d}});
    }
    return make_synthetic_weights(path, tensors);
}

}  // namespace draftscope
