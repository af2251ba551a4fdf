#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/draft/drafter_files.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/head_rows.h"
#include "engine/formats/architecture.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

std::string made_for(const EagleCheckpoint& out) {
    return out.verifier.empty() ? "another target" : out.verifier;
}

Status match_target(const JsonFile& file, const char* field, int found, int expected,
                    const EagleCheckpoint& out) {
    if (found == expected) return {};
    return bad_input("{}: {} is {}, but the target has {}: this drafter was made for {}", file.path(), field,
                     found, expected, made_for(out));
}

/// A small difference is padding or added tokens.
Status match_vocab(const JsonFile& file, const char* field, int target, EagleCheckpoint& out) {
    if (std::abs(out.own_vocab - target) > max_vocab_difference)
        return match_target(file, field, out.own_vocab, target, out);
    if (out.own_vocab != target)
        add_note(out.notes, "{}: {} is {}, but the target has {}; taken for padding or added tokens{}",
                 file.path(), field, out.own_vocab, target,
                 out.own_vocab < target
                     ? fmt::format(": tokens {} to {} are never drafted", out.own_vocab, target - 1)
                     : std::string());
    return {};
}

/// Reads a list of layers such as "2, 18, 33" from `field`. `offset` converts the layout's count to the layer
/// that the residual stream enters. An absent or empty list keeps the list of another field.
Status read_aux_layers(const JsonFile& file, const char* field, int offset, EagleCheckpoint& out) {
    const Json* ids = file.find(field);
    if (ids == nullptr) return {};
    if (!ids->is_array()) return file.field_error(field, "layer numbers");
    if (ids->empty()) return {};
    std::vector<int> layers;
    for (const Json& id : *ids) {
        const std::int64_t layer = id.is_number_integer() ? id.get<std::int64_t>() : -1;
        if (layer < 0 || layer > max_layers)
            return bad_input(
                "{}: {}{} contains {}, expected layer numbers from 0; give the layers with layers=",
                file.path(), file.prefix(), field, printable_json(id));
        layers.push_back(static_cast<int>(layer) + offset);
    }
    if (!out.aux_layers.empty() && out.aux_layers != layers)
        add_note(out.notes, "{}: {}{} is used; another field names other layers", file.path(), file.prefix(),
                 field);
    out.aux_layers = std::move(layers);
    out.aux_field = file.path() + ": " + file.prefix() + field;
    out.aux_offset = offset;
    return {};
}

/// Returns an error if a switch selects an unsupported computation.
Status reject(const JsonFile& file, const char* field, bool unsupported) {
    DS_ASSIGN(const auto value, file.boolean(field));
    if (value.value_or(!unsupported) != unsupported) return {};
    return file.field_error(field, unsupported ? "false (true is not supported by this version)"
                                               : "true (false is not supported by this version)");
}

Status read_flag(const JsonFile& file, const char* field, bool& out) {
    DS_ASSIGN(const auto value, file.boolean(field));
    out = value.value_or(out);
    return {};
}

Status read_norm_flags(const JsonFile& file, EagleNorms& out) {
    DS_TRY(read_flag(file, "norm_before_residual", out.before_residual));
    DS_TRY(read_flag(file, "norm_before_fc", out.before_fc));
    DS_TRY(read_flag(file, "fc_norm", out.of_features));
    return read_flag(file, "norm_output", out.output);
}

/// SpecForge's class recycles the state before the norm, whatever the flag, and norms the head's input only
/// with it. Engines read the flag as "recycle the normed state".
Status read_specforge_norm(const JsonFile& file, EagleNorms& out) {
    DS_ASSIGN(const auto flag, file.boolean("norm_output"));
    if (!flag) return {};
    out.output = false;
    out.head = *flag;
    out.note = fmt::format(
        "{}: norm_output is {}: read as SpecForge trains it: {}the state before the norm is recycled; "
        "recycle=normed recycles the other, as engines do",
        file.path(), *flag, *flag ? "" : "no norm before the LM head, ");
    return {};
}

/// Section of SpecForge, SGLang and NVIDIA's exporter: {"eagle_aux_hidden_state_layer_ids": [...], switches}.
/// The ids count layers by their *output* (SGLang adds one before it captures a layer's input). With
/// "aux_meaning": "hidden state entering ..." they mean the input.
Status read_eagle_section(const JsonFile& file, EagleCheckpoint& out) {
    DS_ASSIGN(const auto section, file.object("eagle_config"));
    if (!section) return {};
    out.layout = EagleLayout::specforge;
    DS_TRY(check_keys(*section, eagle_section_keys, out.notes));
    DS_ASSIGN(const auto meaning, section->text("aux_meaning"));
    const bool entering = meaning.value_or("").find("entering") != std::string::npos;
    DS_TRY(read_aux_layers(*section, "eagle_aux_hidden_state_layer_ids", entering ? 0 : 1, out));
    DS_TRY(reject(*section, "use_aux_hidden_state", false));
    DS_TRY(reject(*section, "use_input_layernorm_in_first_layer", false));
    DS_TRY(reject(*section, "use_last_layernorm", false));
    DS_TRY(reject(*section, "use_mtp_layernorm", true));
    DS_TRY(reject(*section, "eh_proj_before_attn", true));
    DS_TRY(read_flag(*section, "return_hidden_post_norm", out.norms.output));
    return read_norm_flags(*section, out.norms);
}

/// Returns an error for fields of the layer's config that would change the computation.
Status reject_layer_variants(const JsonFile& file) {
    DS_ASSIGN(const auto activation, file.text("hidden_act"));
    if (activation.value_or("silu") != "silu") return file.field_error("hidden_act", "silu");
    DS_TRY(reject(file, "mlp_bias", true));
    DS_TRY(reject(file, "use_sliding_window", true));
    DS_ASSIGN(const auto layers, file.count("num_hidden_layers", max_extent));
    if (layers.value_or(1) != 1) return file.field_error("num_hidden_layers", "1: one decoder layer");
    const Json* types = file.find("layer_types");
    if (types == nullptr || !types->is_array()) return {};
    for (const Json& type : *types) {
        if (type != "full_attention") return file.field_error("layer_types", "full_attention");
    }
    return {};
}

/// Defaults of the layer's class, which speculators omits when it writes the config.
struct LayerDefaults {
    std::optional<int> hidden, heads, ffn;
    int head_dim = 0;  ///< 0 = hidden / heads
};

Status read_layer(const JsonFile& file, const LayerDefaults& defaults, EagleCheckpoint& out) {
    DS_TRY(reject_layer_variants(file));
    LayerShape& shape = out.shape;
    const auto required = [&](const char* field, std::optional<int> fallback, int& value) -> Status {
        DS_ASSIGN(const auto found, file.count(field, max_extent));
        if (!found && !fallback) return file.field_error(field, "an integer: a dimension of the layer");
        value = found ? *found : *fallback;
        return {};
    };
    DS_TRY(required("hidden_size", defaults.hidden, shape.hidden));
    DS_TRY(required("num_attention_heads", defaults.heads, shape.heads));
    DS_TRY(required("num_key_value_heads", shape.heads, shape.kv_heads));
    DS_TRY(required("intermediate_size", defaults.ffn, shape.ffn));
    DS_ASSIGN(const auto head_dim, file.count("head_dim", max_extent));
    shape.head_dim =
        head_dim.value_or(defaults.head_dim > 0 ? defaults.head_dim : shape.hidden / shape.heads);
    DS_ASSIGN(const auto context, file.count("max_position_embeddings", max_extent));
    out.trained_positions = context.value_or(0);
    DS_ASSIGN(const auto eps, file.positive("rms_norm_eps"));
    shape.norm_eps = static_cast<float>(eps.value_or(1e-6));
    DS_TRY(check_head_sizes(file.path(), shape.heads, shape.kv_heads, shape.head_dim));
    DS_ASSIGN(out.rotation, read_hf_rope(file, shape.head_dim, out.notes));
    return {};
}

Status check_sizes(const JsonFile& outer, const JsonFile& layer, const ModelConfig& target,
                   EagleCheckpoint& out) {
    DS_ASSIGN(const auto target_hidden, outer.count("target_hidden_size", max_extent));
    out.target_hidden = target_hidden.value_or(out.shape.hidden);
    DS_TRY(match_target(outer, target_hidden ? "target_hidden_size" : "hidden_size", out.target_hidden,
                        target.hidden, out));
    DS_ASSIGN(const auto draft_vocab, outer.count("draft_vocab_size", max_extent));
    out.draft_vocab = draft_vocab.value_or(0);
    DS_ASSIGN(auto vocab, layer.count("vocab_size", max_extent));
    const char* field = vocab ? "vocab_size" : "target_vocab_size";
    if (!vocab) {
        DS_ASSIGN(vocab, layer.count(field, max_extent));
    }
    if (!vocab) return {};
    out.own_vocab = *vocab;
    return match_vocab(layer, field, target.vocab, out);
}

/// The verifier's name only serves messages.
Status read_verifier(const JsonFile& file, EagleCheckpoint& out) {
    DS_ASSIGN(const auto speculators, file.object("speculators_config"));
    if (!speculators) return {};
    DS_ASSIGN(const auto verifier, speculators->object("verifier"));
    if (!verifier) return {};
    DS_ASSIGN(const auto name, verifier->text("name_or_path"));
    out.verifier = name.value_or("");
    return {};
}

Status read_speculators(const JsonFile& file, const ModelConfig& target, EagleCheckpoint& out) {
    out.layout = EagleLayout::speculators;
    DS_ASSIGN(const auto type, file.text("speculators_model_type"));
    if (type && *type != "eagle3" && *type != "eagle")
        return file.field_error("speculators_model_type", "eagle3 or eagle");
    DS_TRY(check_keys(file, speculators_keys, out.notes));
    DS_TRY(read_verifier(file, out));
    DS_TRY(reject(file, "layernorms", true));
    DS_ASSIGN(const auto fusion_bias, file.boolean("fusion_bias"));
    out.fc_bias = fusion_bias;
    DS_TRY(read_norm_flags(file, out.norms));
    DS_TRY(read_aux_layers(file, "aux_hidden_state_layer_ids", 0, out));
    DS_TRY(read_aux_layers(file, "eagle_aux_hidden_state_layer_ids", 0, out));
    DS_ASSIGN(const auto layer, file.object("transformer_layer_config"));
    if (!layer) return file.field_error("transformer_layer_config", "the decoder layer's config");
    DS_TRY(check_keys(*layer, eagle_layer_keys, out.notes));
    DS_ASSIGN(const auto model_type, layer->text("model_type"));
    const std::string model = model_type.value_or("qwen3");
    if (model != "llama" && model != "qwen3") return layer->field_error("model_type", "llama or qwen3");
    const bool qwen = model == "qwen3";
    DS_TRY(read_layer(*layer, {4096, 32, qwen ? 22016 : 11008, qwen ? 128 : 0}, out));
    return check_sizes(file, *layer, target, out);
}

}  // namespace

Status read_eagle_config(const JsonFile& file, const ModelConfig& target, EagleCheckpoint& out) {
    if (file.find("speculators_model_type") != nullptr || file.find("speculators_config") != nullptr)
        return read_speculators(file, target, out);
    const Json* classes = file.find("architectures");
    const bool specforge =
        classes != nullptr && classes->is_array() &&
        std::find(classes->begin(), classes->end(), "LlamaForCausalLMEagle3") != classes->end();
    if (specforge) out.layout = EagleLayout::specforge;
    DS_TRY(check_keys(file, eagle_keys, out.notes));
    for (const char* field : {"base_model_name_or_path", "target_model_name_or_path"}) {
        DS_ASSIGN(const auto name, file.text(field));
        if (name) out.verifier = *name;
    }
    DS_TRY(read_layer(file, {}, out));
    DS_ASSIGN(out.fc_bias, file.boolean("bias"));
    DS_TRY(read_norm_flags(file, out.norms));
    if (specforge) DS_TRY(read_specforge_norm(file, out.norms));
    DS_TRY(read_aux_layers(file, "eagle_aux_hidden_state_layer_ids", 0, out));
    DS_TRY(read_eagle_section(file, out));
    return check_sizes(file, file, target, out);
}

}  // namespace draftscope
