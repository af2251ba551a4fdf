#include "engine/draft/eagle_checkpoint.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/model/weight_packing.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

Result<Json> read_config(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        return bad_input("{}: cannot be read; a drafter folder holds config.json and model.safetensors",
                         path);
    }
    Json json = Json::parse(file, nullptr, false);
    if (!json.is_object()) return bad_input("{}: is not a JSON object", path);
    return json;
}

/// A number of `json`, or `fallback` when the field is absent or null.
Result<double> number(const Json& json, const std::string& path, const char* field,
                      std::optional<double> fallback, double highest = 1 << 24) {
    const auto found = json.find(field);
    if (found == json.end() || found->is_null()) {
        if (fallback) return *fallback;
        return bad_input("{}: field '{}' is missing", path, field);
    }
    if (!found->is_number() || found->get<double>() <= 0 || found->get<double>() > highest) {
        return bad_input("{}: {} is {}, expected a number in (0, {}]", path, field, found->dump(), highest);
    }
    return found->get<double>();
}

Result<int> integer(const Json& json, const std::string& path, const char* field,
                    std::optional<double> fallback = {}) {
    DS_ASSIGN(const double value, number(json, path, field, fallback));
    return static_cast<int>(value);
}

Status match_target(const std::string& path, const char* field, int found, int wanted) {
    if (found == wanted) return {};
    return bad_input("{}: {} is {}, but the target has {}: this drafter was made for another target", path,
                     field, found, wanted);
}

/// Which hidden states EAGLE-3 fuses: those entering layers 2, L/2 and L - 3 unless the config names others.
Status read_eagle3_fields(const Json& json, const std::string& path, const ModelConfig& target,
                          EagleCheckpoint& checkpoint) {
    checkpoint.aux_layers = {2, target.layers / 2, target.layers - 3};
    if (const auto flag = json.find("norm_before_residual"); flag != json.end() && flag->is_boolean()) {
        checkpoint.norm_before_residual = flag->get<bool>();
    }
    const auto eagle = json.find("eagle_config");
    if (eagle == json.end() || !eagle->is_object()) return {};
    const auto ids = eagle->find("eagle_aux_hidden_state_layer_ids");
    if (ids == eagle->end()) return {};
    if (!ids->is_array() || ids->empty()) {
        return bad_input("{}: eagle_aux_hidden_state_layer_ids is {}, expected layer numbers", path,
                         ids->dump());
    }
    checkpoint.aux_layers.clear();
    for (const Json& id : *ids) {
        if (!id.is_number_integer() || id.get<int>() < 0 || id.get<int>() >= target.layers) {
            return bad_input("{}: eagle_aux_hidden_state_layer_ids holds {}, the target has layers 0..{}",
                             path, id.dump(), target.layers - 1);
        }
        checkpoint.aux_layers.push_back(id.get<int>());
    }
    return {};
}

}  // namespace

Result<EagleCheckpoint> open_eagle_checkpoint(const std::string& folder, const Target& target) {
    const std::string config_path = (std::filesystem::path(folder) / "config.json").string();
    const ModelConfig& config = target.config();
    DS_ASSIGN(const Json json, read_config(config_path));
    EagleCheckpoint checkpoint;
    checkpoint.folder = folder;
    LayerShape& shape = checkpoint.shape;
    DS_ASSIGN(shape.hidden, integer(json, config_path, "hidden_size"));
    DS_ASSIGN(shape.heads, integer(json, config_path, "num_attention_heads"));
    DS_ASSIGN(shape.kv_heads, integer(json, config_path, "num_key_value_heads", shape.heads));
    DS_ASSIGN(shape.head_dim, integer(json, config_path, "head_dim", shape.hidden / shape.heads));
    DS_ASSIGN(shape.ffn, integer(json, config_path, "intermediate_size"));
    DS_ASSIGN(const double eps, number(json, config_path, "rms_norm_eps", 1e-6));
    shape.norm_eps = static_cast<float>(eps);
    DS_ASSIGN(const double theta, number(json, config_path, "rope_theta", 10000.0, 1e12));
    checkpoint.rope_theta = static_cast<float>(theta);
    if (const auto bias = json.find("bias"); bias != json.end() && bias->is_boolean()) {
        checkpoint.fc_bias = bias->get<bool>();
    }
    DS_TRY(read_eagle3_fields(json, config_path, config, checkpoint));
    DS_ASSIGN(const int vocab, integer(json, config_path, "vocab_size", config.vocab));
    DS_TRY(match_target(config_path, "hidden_size", shape.hidden, config.hidden));
    DS_TRY(match_target(config_path, "vocab_size", vocab, config.vocab));
    if (shape.heads % shape.kv_heads != 0 || shape.head_dim < 2 || shape.head_dim % 2 != 0) {
        return bad_input("{}: {} heads, {} key/value heads of size {} do not make an attention", config_path,
                         shape.heads, shape.kv_heads, shape.head_dim);
    }
    DS_ASSIGN(checkpoint.weights,
              open_safetensors((std::filesystem::path(folder) / "model.safetensors").string()));
    if (checkpoint.weights->find("embed_tokens.weight") != nullptr) {
        DS_ASSIGN(checkpoint.embedding, require_tensor(*checkpoint.weights, "embed_tokens.weight",
                                                       {config.vocab, config.hidden}, "from the target"));
    }
    checkpoint.rope = kernels::make_rope_table(shape.head_dim, checkpoint.rope_theta, config.context);
    return checkpoint;
}

Result<DecoderLayer> load_eagle_layer(kernels::Exec& exec, kernels::Precision precision,
                                      const EagleCheckpoint& checkpoint, const std::string& prefix,
                                      int qkv_inputs) {
    const LayerShape& shape = checkpoint.shape;
    const WeightSource& source = *checkpoint.weights;
    const std::string reason = "from config.json and the target";
    const auto stack = [&](std::initializer_list<StackedTensor> parts, int cols) {
        std::vector<StackedTensor> named(parts);
        for (StackedTensor& part : named) part.name = prefix + part.name + "_proj.weight";
        return pack_stacked(exec, precision, source, named, cols, reason);
    };
    DecoderLayer layer;
    DS_ASSIGN(layer.qkv, stack({{"self_attn.q", shape.q_width()},
                                {"self_attn.k", shape.kv_width()},
                                {"self_attn.v", shape.kv_width()}},
                               qkv_inputs));
    DS_ASSIGN(layer.attn_out, stack({{"self_attn.o", shape.hidden}}, shape.q_width()));
    DS_ASSIGN(layer.gate_up, stack({{"mlp.gate", shape.ffn}, {"mlp.up", shape.ffn}}, shape.hidden));
    DS_ASSIGN(layer.down, stack({{"mlp.down", shape.hidden}}, shape.ffn));
    DS_ASSIGN(layer.ffn_norm,
              read_vector(source, prefix + "post_attention_layernorm.weight", shape.hidden, reason));
    return layer;
}

void embed_for_eagle(const EagleCheckpoint& checkpoint, const Target& target, std::span<const TokenId> tokens,
                     Rows<float> out) {
    if (checkpoint.embedding == nullptr) return target.embed(tokens, out);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        checkpoint.weights->read_row(*checkpoint.embedding, tokens[i], out.row_data(static_cast<int>(i)));
    }
}

}  // namespace draftscope
