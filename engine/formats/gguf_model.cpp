#include "engine/formats/gguf_model.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/formats/config_keys.h"
#include "engine/formats/gguf_keys.h"
#include "engine/formats/rope_config.h"
#include "engine/formats/tensor_index.h"

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
    DS_TRY(check_keys(file.path(), prefix, file.values_below(prefix), gguf_model_keys(), notes));
    DS_TRY(check_keys(file.path(), "general.", file.values_below("general."), gguf_general_keys(), notes));
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
    const auto& tensors = file.tensors();
    const auto embedding = tensors.find("token_embd.weight");
    if (embedding == tensors.end())
        return bad_input("{}: tensor 'token_embd.weight' is missing; the file does not hold a complete model",
                         file.path());
    const std::int64_t vocab = embedding->second.info.rows();
    if (vocab > max_extent)
        return bad_input("{}: a vocabulary of {} tokens is larger than supported", file.path(), vocab);
    config.vocab = static_cast<int>(vocab);
    config.tied_head = !tensors.contains("output.weight");
    std::vector<ModelTensor> required = model_tensors(config);
    if (tensors.contains("rope_freqs.weight"))
        required.push_back({"rope_freqs.weight", {config.head_dim / 2}});
    std::set<std::string> used;
    for (const auto& [name, shape] : required) {
        const auto found = tensors.find(name);
        if (found == tensors.end())
            return bad_input("{}: tensor '{}' is missing; the file does not hold a complete model",
                             file.path(), name);
        if (found->second.info.shape != shape) {
            return bad_input("{}: tensor '{}' has shape [{}], the metadata requires [{}]", file.path(), name,
                             fmt::join(found->second.info.shape, ", "), fmt::join(shape, ", "));
        }
        used.insert(name);
    }
    for (const auto& [name, tensor] : tensors) {
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

namespace {

struct Entry {
    const GgufTensor* tensor;
    bool permuted;
    std::int64_t row_bytes;
};

class GgufWeights final : public WeightSource {
  public:
    GgufWeights(GgufFile file, int head_dim, bool permuted_qk) : file_(std::move(file)), head_dim_(head_dim) {
        for (const auto& [name, tensor] : file_.tensors()) {
            const bool is_qk = name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
            const std::int64_t blocks = tensor.info.cols() / tensor.type->block_elements;
            entries_.add(name, {&tensor, permuted_qk && is_qk, blocks * tensor.type->block_bytes});
        }
    }

    const std::string& path() const override { return file_.path(); }

    const TensorInfo* find(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        return entry == nullptr ? nullptr : &entry->tensor->info;
    }

    std::vector<std::string> names() const override { return entries_.names(); }

    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        assert(row >= 0 && row < tensor.rows());
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        const TensorType& type = *entry->tensor->type;
        type.dequantise(stored_row(tensor, row), tensor.cols() / type.block_elements, out);
    }

    bool read_int4_row(const TensorInfo& tensor, std::int64_t row,
                       const kernels::Int4Row& out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        return unpack_int4(*entry->tensor->type, stored_row(tensor, row), out);
    }

    std::vector<const MappedFile*> files() const override { return file_.files(); }
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return {};
        return {entry->tensor->data, static_cast<std::size_t>(entry->tensor->info.bytes)};
    }
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return nullptr;
        const std::int64_t stored_row = entry->permuted ? interleaved_row(row, head_dim_) : row;
        return entry->tensor->data + stored_row * entry->row_bytes;
    }
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        if (entry == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
        const GgufTensor& stored = *entry->tensor;
        const bool wide = stored.type->name == "I64";
        if (!wide && stored.type->name != "I32") {
            return bad_input("{}: tensor '{}' has type {}, expected integers", path(), name,
                             stored.type->name);
        }
        const std::size_t size = wide ? 8 : 4;
        std::vector<std::int64_t> out(static_cast<std::size_t>(stored.info.bytes) / size);
        for (std::size_t i = 0; i < out.size(); ++i) {
            std::int32_t narrow = 0;
            if (wide)
                std::memcpy(&out[i], stored.data + i * size, size);
            else
                std::memcpy(&narrow, stored.data + i * size, size);
            if (!wide) out[i] = narrow;
        }
        return out;
    }

  private:
    GgufFile file_;
    int head_dim_;
    TensorIndex<Entry> entries_;
};

}  // namespace

std::unique_ptr<WeightSource> make_gguf_weights(GgufFile file, const ModelConfig& config, bool permuted_qk) {
    return std::make_unique<GgufWeights>(std::move(file), config.head_dim, permuted_qk);
}

}  // namespace draftscope
