#include "engine/formats/gguf_model.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/formats/config_keys.h"
#include "engine/formats/dequant.h"
#include "engine/formats/rope_config.h"
#include "engine/formats/tensor_index.h"

namespace draftscope {
namespace {

/// Reads the integers of one architecture and keeps the first error.
class ConfigReader {
  public:
    ConfigReader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {}

    std::string key(std::string_view field) const { return fmt::format("{}.{}", prefix_, field); }

    Result<std::optional<int>> optional(std::string_view field, std::int64_t max_value = max_extent) const {
        DS_ASSIGN(const auto value, file_.integer(key(field)));
        if (!value) return std::optional<int>();
        if (*value < 1 || *value > max_value) {
            return bad_input("{}: metadata '{}' is {}, expected 1 to {}", file_.path(), key(field), *value,
                             max_value);
        }
        return std::optional<int>(static_cast<int>(*value));
    }

    Result<int> required(std::string_view field, std::int64_t max_value = max_extent) const {
        DS_ASSIGN(const auto value, optional(field, max_value));
        if (!value) return missing(field);
        return *value;
    }

    Result<float> positive(std::string_view field, std::optional<float> fallback) const {
        DS_ASSIGN(const auto value, file_.number(key(field)));
        if (!value && !fallback) return missing(field);
        const float result = value ? static_cast<float>(*value) : *fallback;
        if (!std::isfinite(result) || result <= 0.0f) {
            return bad_input("{}: metadata '{}' is {}, expected a positive number", file_.path(), key(field),
                             result);
        }
        return result;
    }

  private:
    Error missing(std::string_view field) const {
        return bad_input("{}: metadata '{}' is missing; the file does not describe a complete model",
                         file_.path(), key(field));
    }

    const GgufFile& file_;
    std::string prefix_;
};

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
Status read_heads(const GgufFile& file, const ConfigReader& reader, ModelConfig& config) {
    DS_ASSIGN(config.heads, reader.required("attention.head_count"));
    DS_ASSIGN(const auto kv_heads, reader.optional("attention.head_count_kv"));
    config.kv_heads = kv_heads.value_or(config.heads);
    if (config.heads % config.kv_heads != 0) {
        return bad_input("{}: {} query heads cannot share {} key/value heads", file.path(), config.heads,
                         config.kv_heads);
    }
    DS_ASSIGN(const auto key_length, reader.optional("attention.key_length"));
    DS_ASSIGN(const auto value_length, reader.optional("attention.value_length"));
    if (!key_length && config.hidden % config.heads != 0) {
        return bad_input("{}: embedding length {} is not a multiple of {} heads", file.path(), config.hidden,
                         config.heads);
    }
    config.head_dim = key_length.value_or(config.hidden / config.heads);
    if (config.head_dim % 2 != 0)
        return bad_input("{}: heads are {} wide, expected an even width", file.path(), config.head_dim);
    if (value_length.value_or(config.head_dim) != config.head_dim) {
        return bad_input("{}: keys are {} wide and values {}; only equal widths are supported", file.path(),
                         config.head_dim, *value_length);
    }
    if (std::int64_t{config.heads} * config.head_dim > max_extent)
        return bad_input("{}: {} heads of {} are wider than supported", file.path(), config.heads,
                         config.head_dim);
    DS_ASSIGN(const auto rotated, reader.optional("rope.dimension_count"));
    if (rotated.value_or(config.head_dim) != config.head_dim) {
        return bad_input("{}: '{}' is {}, but heads are {} wide; partial rotation is not supported",
                         file.path(), reader.key("rope.dimension_count"), *rotated, config.head_dim);
    }
    return {};
}

Status read_rope(const GgufFile& file, const Architecture& architecture, ModelConfig& config) {
    constexpr std::array<std::string_view, 1> divisors = {"rope_freqs.weight"};
    DS_ASSIGN(RopeConfig rope, read_gguf_rope(file, std::string(architecture.name), config.head_dim,
                                              config.context, divisors));
    config.rope_theta = rope.theta;
    config.rope_divisors = std::move(rope.divisors);
    config.rope_scale = rope.scale;
    return {};
}

/// Checks the keys that nobody reads, and the attention's settings that other models have.
Status check_metadata(const GgufFile& file, const ConfigReader& reader, const ModelConfig& config,
                      Notes& notes) {
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

/// Compares a file's tensors with those that the model requires.
class TensorCheck {
  public:
    explicit TensorCheck(const GgufFile& file) : file_(file) {}

    Status require(const std::string& name, const std::vector<std::int64_t>& shape) {
        const auto found = file_.tensors().find(name);
        if (found == file_.tensors().end())
            return bad_input("{}: tensor '{}' is missing; the file does not hold a complete model",
                             file_.path(), name);
        if (found->second.info.shape != shape) {
            return bad_input("{}: tensor '{}' has shape [{}], the metadata requires [{}]", file_.path(), name,
                             fmt::join(found->second.info.shape, ", "), fmt::join(shape, ", "));
        }
        used_.insert(name);
        return {};
    }

    bool has(const std::string& name) const { return file_.tensors().count(name) != 0; }

    Status reject_unused() const {
        for (const auto& [name, tensor] : file_.tensors()) {
            if (used_.count(name) == 0) {
                return bad_input(
                    "{}: tensor '{}' is not part of a model that this version supports; the file holds "
                    "another kind of model",
                    file_.path(), printable(name));
            }
        }
        return {};
    }

  private:
    const GgufFile& file_;
    std::set<std::string> used_;
};

Status check_tensors(const GgufFile& file, ModelConfig& config) {
    TensorCheck check(file);
    const auto embedding = file.tensors().find("token_embd.weight");
    if (embedding == file.tensors().end())
        return bad_input("{}: tensor 'token_embd.weight' is missing; the file does not hold a complete model",
                         file.path());
    const std::int64_t vocab = embedding->second.info.rows();
    if (vocab > max_extent)
        return bad_input("{}: a vocabulary of {} tokens is larger than supported", file.path(), vocab);
    config.vocab = static_cast<int>(vocab);
    config.tied_head = !check.has("output.weight");
    for (const ModelTensor& tensor : model_tensors(config)) DS_TRY(check.require(tensor.name, tensor.shape));
    if (check.has("rope_freqs.weight")) DS_TRY(check.require("rope_freqs.weight", {config.head_dim / 2}));
    return check.reject_unused();
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
    const ConfigReader reader(file, architecture.name);
    ModelConfig config;
    apply_architecture(architecture, config);
    config.name = display_name(file);
    DS_ASSIGN(config.layers, reader.required("block_count", max_layers));
    DS_ASSIGN(config.hidden, reader.required("embedding_length"));
    DS_ASSIGN(config.ffn, reader.required("feed_forward_length"));
    DS_ASSIGN(config.context, reader.required("context_length"));
    DS_TRY(read_heads(file, reader, config));
    DS_TRY(check_metadata(file, reader, config, notes));
    DS_ASSIGN(config.norm_eps, reader.positive("attention.layer_norm_rms_epsilon", std::nullopt));
    DS_TRY(check_tensors(file, config));
    DS_TRY(read_rope(file, architecture, config));
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

class GgufWeights final : public WeightSource, public Int4Rows {
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
        decode_row(tensor, stored_row(tensor, row), out);
    }

    bool decode_int4_row(const TensorInfo& tensor, const std::uint8_t* bytes,
                         const kernels::Int4Row& out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        return unpack_int4(*entry->tensor->type, bytes, out);
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
    void decode_row(const TensorInfo& tensor, const std::uint8_t* bytes, float* out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        const TensorType& type = *entry->tensor->type;
        type.dequantise(bytes, tensor.cols() / type.block_elements, out);
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
