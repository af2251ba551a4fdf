#include <cmath>
#include <numbers>
#include <utility>

#include "engine/model/architecture.h"
#include "engine/model/hf_folder.h"
#include "engine/model/mapped_file.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

// Far above any model, and small enough that products of two never overflow 64 bits.
constexpr std::int64_t largest_layers = 4096;
constexpr std::int64_t largest_extent = std::int64_t{1} << 24;

Result<const Architecture*> find_architecture(const JsonFile& file) {
    const Json* names = file.find("architectures");
    if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string())
        return file.wrong("architectures", "the name of a model class");
    const auto name = names->front().get<std::string>();
    if (const Architecture* found = architecture_by_hf_class(name)) return found;
    return bad_input("{}: architecture '{}' is not supported by this version (supported: {})", file.path(),
                     printable(name), known_hf_classes());
}

/// Settings that would change the computation in a way that is not implemented.
Status refuse_variants(const JsonFile& file, const Architecture& architecture) {
    DS_ASSIGN(const auto activation, file.text("hidden_act"));
    if (activation.value_or("silu") != "silu") return file.wrong("hidden_act", "silu");
    // Qwen 2 has its biases without saying so.
    for (const char* field : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
        DS_ASSIGN(const auto on, file.boolean(field));
        if (on.value_or(false)) {
            return file.wrong(
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

Status read_heads(const JsonFile& file, ModelConfig& config) {
    DS_ASSIGN(config.heads, file.required_count("num_attention_heads", largest_extent));
    DS_ASSIGN(const auto kv_heads, file.count("num_key_value_heads", largest_extent));
    config.kv_heads = kv_heads.value_or(config.heads);
    DS_ASSIGN(const auto head_dim, file.count("head_dim", largest_extent));
    // Qwen 3's class has a default of its own.
    const int fallback = config.architecture == "qwen3" ? 128 : config.hidden / config.heads;
    if (!head_dim && config.architecture != "qwen3" && config.hidden % config.heads != 0) {
        return bad_input("{}: hidden_size {} is no multiple of {} heads", file.path(), config.hidden,
                         config.heads);
    }
    config.head_dim = head_dim.value_or(fallback);
    if (config.heads % config.kv_heads != 0) {
        return bad_input("{}: {} heads cannot share {} key/value heads", file.path(), config.heads,
                         config.kv_heads);
    }
    if (config.head_dim % 2 != 0 || config.head_dim < 2)
        return bad_input("{}: heads are {} wide, expected an even width", file.path(), config.head_dim);
    if (std::int64_t{config.heads} * config.head_dim > largest_extent)
        return bad_input("{}: {} heads of {} are wider than supported", file.path(), config.heads,
                         config.head_dim);
    return {};
}

struct Llama3Scaling {
    double factor = 0, low = 0, high = 0, original_context = 0;
};

/// The scaling as the divisors of the base frequencies: 1 for short waves, `factor` for long ones, and in
/// between the blend of both frequencies.
std::vector<float> llama3_divisors(const Llama3Scaling& scaling, const ModelConfig& config) {
    std::vector<float> out;
    for (int j = 0; j < config.head_dim / 2; ++j) {
        const double frequency = std::pow(static_cast<double>(config.rope_theta), -2.0 * j / config.head_dim);
        const double waves = scaling.original_context * frequency / (2 * std::numbers::pi);
        double scaled = frequency;
        if (waves < scaling.low) {
            scaled = frequency / scaling.factor;
        } else if (waves <= scaling.high) {
            const double share = (waves - scaling.low) / (scaling.high - scaling.low);
            scaled = (1 - share) * frequency / scaling.factor + share * frequency;
        }
        out.push_back(static_cast<float>(frequency / scaled));
    }
    return out;
}

Status read_llama3(const JsonFile& scaling, ModelConfig& config) {
    Llama3Scaling values;
    const auto read = [&](const char* field, double& out) -> Status {
        DS_ASSIGN(const auto value, scaling.positive(field));
        if (!value) return scaling.wrong(field, "a positive number");
        out = *value;
        return {};
    };
    DS_TRY(read("factor", values.factor));
    DS_TRY(read("low_freq_factor", values.low));
    DS_TRY(read("high_freq_factor", values.high));
    DS_TRY(read("original_max_position_embeddings", values.original_context));
    if (values.high <= values.low) return scaling.wrong("high_freq_factor", "more than low_freq_factor");
    config.rope_divisors = llama3_divisors(values, config);
    return {};
}

/// Older files have rope_theta and rope_scaling, newer ones rope_parameters with both inside.
Status read_rope(const JsonFile& file, ModelConfig& config) {
    DS_ASSIGN(auto scaling, file.object("rope_scaling"));
    DS_ASSIGN(auto theta, file.positive("rope_theta"));
    DS_ASSIGN(auto parameters, file.object("rope_parameters"));
    if (parameters) {
        DS_ASSIGN(theta, parameters->positive("rope_theta"));
        scaling = std::move(parameters);
    }
    config.rope_theta = static_cast<float>(theta.value_or(10000.0));
    if (!scaling) return {};
    const char* field = scaling->find("rope_type") != nullptr ? "rope_type" : "type";
    DS_ASSIGN(const auto type, scaling->text(field));
    if (type.value_or("default") == "default") return {};
    if (*type == "llama3") return read_llama3(*scaling, config);
    return scaling->wrong(field, "'default' or 'llama3', the rotations this version computes");
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonFile& file) {
    DS_ASSIGN(const Architecture* architecture, find_architecture(file));
    DS_TRY(refuse_variants(file, *architecture));
    HfConfig out;
    ModelConfig& config = out.config;
    apply_architecture(*architecture, config);
    DS_ASSIGN(config.layers, file.required_count("num_hidden_layers", largest_layers));
    DS_ASSIGN(config.hidden, file.required_count("hidden_size", largest_extent));
    DS_ASSIGN(config.ffn, file.required_count("intermediate_size", largest_extent));
    DS_ASSIGN(config.context, file.required_count("max_position_embeddings", largest_extent));
    DS_ASSIGN(config.vocab, file.required_count("vocab_size", largest_extent));
    DS_TRY(read_heads(file, config));
    DS_TRY(read_rope(file, config));
    DS_ASSIGN(const auto eps, file.positive("rms_norm_eps"));
    if (!eps) return file.wrong("rms_norm_eps", "a positive number");
    config.norm_eps = static_cast<float>(*eps);
    DS_ASSIGN(out.tied, file.boolean("tie_word_embeddings"));
    return out;
}

}  // namespace draftscope
