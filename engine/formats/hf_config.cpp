#include <utility>

#include "base/mapped_file.h"
#include "engine/formats/architecture.h"
#include "engine/formats/config_keys.h"
#include "engine/formats/hf_folder.h"
#include "engine/formats/rope_config.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

Result<const Architecture*> find_architecture(const JsonFile& file) {
    const Json* names = file.find("architectures");
    if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string())
        return file.field_error("architectures", "the name of a model class");
    const auto name = names->front().get<std::string>();
    if (const Architecture* found = architecture_by_hf_class(name)) return found;
    return bad_input("{}: architecture '{}' is not supported by this version (supported: {})", file.path(),
                     printable(name), known_hf_classes());
}

/// Rejects settings that would change the computation and are not implemented.
Status reject_variants(const JsonFile& file, const Architecture& architecture) {
    DS_ASSIGN(const auto activation, file.text("hidden_act"));
    if (activation.value_or("silu") != "silu") return file.field_error("hidden_act", "silu");
    // Qwen 2 always has biases; its config does not mention them.
    for (const char* field : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
        DS_ASSIGN(const auto on, file.boolean(field));
        if (on.value_or(false)) {
            return file.field_error(
                field, fmt::format("false: this version does not compute it for {}", architecture.hf_class));
        }
    }
    if (file.find("quantization_config") != nullptr) {
        return bad_input(
            "{}: the weights are quantised (quantization_config); this version reads folders of f32, f16 and "
            "bf16 weights, and quantised models as GGUF",
            file.path());
    }
    return {};
}

/// A window as long as the context has no effect. Qwen's configs have a window that is disabled by default.
Status reject_window(const JsonFile& file, const ModelConfig& config) {
    const int context = config.context;
    DS_ASSIGN(const auto window, file.count("sliding_window", INT32_MAX));
    DS_ASSIGN(const auto used, file.boolean("use_sliding_window"));
    const Json* types = file.find("layer_types");
    if (types != nullptr && !types->is_array())
        return file.field_error("layer_types", "a list of layer types");
    const bool is_windowed = window && *window < context;
    for (const Json& type : types == nullptr ? Json::array() : *types)
        if (type != "full_attention" && (type != "sliding_attention" || is_windowed || !window))
            return bad_input(
                "{}: layer_types contains {}, expected full_attention: this version attends to the whole "
                "context",
                file.path(), printable_json(type));
    if (!is_windowed || used.has_value() || config.architecture.starts_with("qwen")) return {};
    return bad_input(
        "{}: sliding_window is {}, shorter than max_position_embeddings {}; this version attends to the "
        "whole "
        "context. Set max_position_embeddings to the window to use the model within it, where both are the "
        "same",
        file.path(), *window, context);
}

Status read_heads(const JsonFile& file, ModelConfig& config) {
    DS_ASSIGN(config.heads, file.required_count("num_attention_heads", max_extent));
    DS_ASSIGN(const auto kv_heads, file.count("num_key_value_heads", max_extent));
    config.kv_heads = kv_heads.value_or(config.heads);
    DS_ASSIGN(const auto head_dim, file.count("head_dim", max_extent));
    // Qwen 3's class has its own default.
    const int fallback = config.architecture == "qwen3" ? 128 : config.hidden / config.heads;
    if (!head_dim && config.architecture != "qwen3" && config.hidden % config.heads != 0) {
        return bad_input("{}: hidden_size {} is not a multiple of {} heads", file.path(), config.hidden,
                         config.heads);
    }
    config.head_dim = head_dim.value_or(fallback);
    return check_head_sizes(file.path(), config.heads, config.kv_heads, config.head_dim);
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonFile& file, Notes& notes) {
    DS_ASSIGN(const Architecture* architecture, find_architecture(file));
    DS_TRY(reject_variants(file, *architecture));
    DS_TRY(check_keys(file, target_keys(), notes));
    HfConfig out;
    ModelConfig& config = out.config;
    apply_architecture(*architecture, config);
    DS_ASSIGN(config.layers, file.required_count("num_hidden_layers", max_layers));
    DS_ASSIGN(config.hidden, file.required_count("hidden_size", max_extent));
    DS_ASSIGN(config.ffn, file.required_count("intermediate_size", max_extent));
    DS_ASSIGN(config.context, file.required_count("max_position_embeddings", max_extent));
    DS_TRY(reject_window(file, config));
    DS_ASSIGN(config.vocab, file.required_count("vocab_size", max_extent));
    DS_TRY(read_heads(file, config));
    DS_ASSIGN(config.rotation, read_hf_rope(file, config.head_dim, notes));
    DS_ASSIGN(const auto eps, file.positive("rms_norm_eps"));
    if (!eps) return file.field_error("rms_norm_eps", "a positive number");
    config.norm_eps = static_cast<float>(*eps);
    DS_ASSIGN(out.tied, file.boolean("tie_word_embeddings"));
    return out;
}

}  // namespace draftscope
