#include "engine/formats/gguf_model.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/formats/config_keys.h"
#include "engine/formats/rope_config.h"

namespace draftscope {
namespace {

/// Returns the model's name from its file name ("SmolLM2-135M-Instruct.Q4_1.gguf" without type and suffix);
/// general.name is often a working title of the training run.
std::string display_name(const GgufFile& file) {
    std::string stem = std::filesystem::path(gguf_stem(file.path())).filename().string();
    const std::size_t cut = stem.find_last_of(".-");
    if (cut != std::string::npos && cut > 0) {
        std::string last = stem.substr(cut + 1);
        for (char& c : last) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
        for (const TensorType& type : readable_tensor_types()) {
            // "Q4_K" also matches the mixes "Q4_K_M" and "Q4_K_S".
            if (last == type.name || last.starts_with(std::string(type.name) + "_"))
                return stem.substr(0, cut);
        }
    }
    return stem;
}

/// Reads and cross-checks the head counts and widths, which several keys define.
Status read_heads(const GgufFile& file, const GgufKeys& reader, ModelConfig& config) {
    DS_ASSIGN(config.heads, reader.required("attention.head_count"));
    DS_ASSIGN(const auto kv_heads, reader.optional("attention.head_count_kv"));
    config.kv_heads = kv_heads.value_or(config.heads);
    DS_ASSIGN(const auto key_length, reader.optional("attention.key_length"));
    DS_ASSIGN(const auto value_length, reader.optional("attention.value_length"));
    if (!key_length && config.hidden % config.heads != 0) {
        return bad_input("{}: embedding length {} is not a multiple of {} heads", file.path(), config.hidden,
                         config.heads);
    }
    config.head_dim = key_length.value_or(config.hidden / config.heads);
    DS_TRY(check_head_sizes(file.path(), config.heads, config.kv_heads, config.head_dim));
    if (value_length.value_or(config.head_dim) != config.head_dim) {
        return bad_input("{}: keys are {} wide and values {}; only equal widths are supported", file.path(),
                         config.head_dim, *value_length);
    }
    DS_ASSIGN(const auto rotated, reader.optional("rope.dimension_count"));
    if (rotated.value_or(config.head_dim) != config.head_dim) {
        return bad_input("{}: '{}' is {}, but heads are {} wide; partial rotation is not supported",
                         file.path(), reader.key("rope.dimension_count"), *rotated, config.head_dim);
    }
    return {};
}

/// Checks the keys that nobody reads, and the attention's settings that other models have.
Status check_metadata(const GgufFile& file, const GgufKeys& reader, const ModelConfig& config, Notes& notes) {
    const std::string prefix = reader.key("");
    DS_TRY(check_keys(file.path(), prefix, file.values_below(prefix), gguf_model_keys, notes));
    DS_TRY(check_keys(file.path(), "general.", file.values_below("general."), gguf_general_keys, notes));
    DS_ASSIGN(const auto scale, file.number(reader.key("attention.scale")));
    const double usual = 1 / std::sqrt(config.head_dim);
    if (scale && *scale != 0 && std::abs(*scale - usual) > 1e-6)
        return bad_input("{}: metadata '{}' is {}, but this version scales by 1 / sqrt({})", file.path(),
                         reader.key("attention.scale"), *scale, config.head_dim);
    DS_ASSIGN(const auto window, file.integer(reader.key("attention.sliding_window")));
    if (window && *window > 0 && *window < config.context)
        return bad_input(
            "{}: metadata '{}' is {}, shorter than the context of {}; this version attends to the whole "
            "context",
            file.path(), reader.key("attention.sliding_window"), *window, config.context);
    return {};
}

/// Compares the file's tensors with those that the model requires.
Status check_tensors(const GgufFile& file, ModelConfig& config) {
    const TensorFile& tensors = file.tensors();
    const auto require = [&](const std::string& name) -> Result<const TensorInfo*> {
        if (const TensorInfo* found = tensors.find(name)) return found;
        return bad_input("{}: tensor '{}' is missing; the file does not hold a complete model", file.path(),
                         name);
    };
    DS_ASSIGN(const TensorInfo* embedding, require("token_embd.weight"));
    const std::int64_t vocab = embedding->rows();
    if (vocab > max_extent)
        return bad_input("{}: a vocabulary of {} tokens is larger than supported", file.path(), vocab);
    config.vocab = static_cast<int>(vocab);
    config.tied_head = tensors.find("output.weight") == nullptr;
    std::vector<ModelTensor> required = model_tensors(config);
    if (tensors.find("rope_freqs.weight") != nullptr)
        required.push_back({"rope_freqs.weight", {config.head_dim / 2}});
    std::set<std::string> used;
    for (const auto& [name, shape] : required) {
        DS_ASSIGN(const TensorInfo* found, require(name));
        if (found->shape != shape) {
            return bad_input("{}: tensor '{}' has shape [{}], the metadata requires [{}]", file.path(), name,
                             fmt::join(found->shape, ", "), fmt::join(shape, ", "));
        }
        used.insert(name);
    }
    for (const std::string& name : tensors.names()) {
        if (used.contains(name)) continue;
        return bad_input(
            "{}: tensor '{}' is not part of a model that this version supports; the file holds another kind "
            "of model",
            file.path(), printable(name));
    }
    return {};
}

}  // namespace

Result<const Architecture*> gguf_architecture(const GgufFile& file) {
    DS_ASSIGN(const auto name, file.text("general.architecture"));
    if (!name) return bad_input("{}: metadata 'general.architecture' is missing", file.path());
    if (const Architecture* architecture = architecture_by_name(*name)) return architecture;
    return bad_input("{}: architecture '{}' is not supported by this version (supported: {})", file.path(),
                     printable(*name), known_architectures());
}

Result<ModelConfig> read_gguf_config(const GgufFile& file, const Architecture& architecture, Notes& notes) {
    const GgufKeys reader(file, architecture.name);
    ModelConfig config;
    apply_architecture(architecture, config);
    config.name = display_name(file);
    DS_ASSIGN(config.layers, reader.required("block_count", max_layers));
    DS_ASSIGN(config.hidden, reader.required("embedding_length"));
    DS_ASSIGN(config.ffn, reader.required("feed_forward_length"));
    DS_ASSIGN(config.context, reader.required("context_length"));
    DS_TRY(read_heads(file, reader, config));
    DS_TRY(check_metadata(file, reader, config, notes));
    DS_ASSIGN(const auto eps, reader.positive("attention.layer_norm_rms_epsilon"));
    if (!eps) return reader.missing("attention.layer_norm_rms_epsilon");
    config.norm_eps = static_cast<float>(*eps);
    DS_TRY(check_tensors(file, config));
    constexpr std::array<std::string_view, 1> divisors = {"rope_freqs.weight"};
    DS_ASSIGN(config.rotation, read_gguf_rope(file, std::string(architecture.name), config.head_dim,
                                              config.context, divisors));
    DS_ASSIGN(const auto vocab, reader.optional("vocab_size"));
    if (vocab.value_or(config.vocab) != config.vocab) {
        return bad_input("{}: metadata '{}' is {}, but token_embd.weight has {} rows", file.path(),
                         reader.key("vocab_size"), *vocab, config.vocab);
    }
    return config;
}

std::unique_ptr<WeightSource> make_gguf_weights(GgufFile file, int head_dim, bool permuted_qk) {
    auto out = std::make_unique<TensorFile>(std::move(file.tensors()));
    for (const std::string& name : out->names())
        if (permuted_qk && (name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight")))
            out->find_stored(name)->interleaved = head_dim;
    return out;
}

}  // namespace draftscope
