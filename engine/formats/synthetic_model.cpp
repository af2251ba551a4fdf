#include "engine/formats/synthetic_model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "base/parse.h"
#include "engine/formats/architecture.h"
#include "engine/formats/tensor_index.h"
#include "engine/tokenizer/pretokenizer.h"

namespace draftscope {
namespace {

constexpr std::string_view scheme = "synthetic:";

struct Dimensions {
    std::string_view name;
    std::string_view architecture;
    int hidden, layers, heads, kv_heads, head_dim, ffn;
    int vocab;   ///< rows of the LM head
    int tokens;  ///< size of the tokenizer; the other rows are padding
    int context;
    float rope_theta, norm_eps;
    bool tied_head;
    int drafter_ffn = 0;    ///< FFN size of published one-layer drafters; 0 = ffn
    bool stand_in = false;  ///< dense layers replace a mixture of experts
};

// From the models' published config.json. Llama 3.1's RoPE scaling is omitted: it costs nothing.
constexpr std::array known_models = {
    Dimensions{"llama-3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 128256, 8192, 5e5f, 1e-5f, false},
    Dimensions{"llama-3.1-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 128256, 131072, 5e5f, 1e-5f,
               false},
    Dimensions{"llama-3.2-1b", "llama", 2048, 16, 32, 8, 64, 8192, 128256, 128256, 131072, 5e5f, 1e-5f, true},
    Dimensions{"qwen2-7b", "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, 151646, 32768, 1e6f, 1e-6f, false},
    Dimensions{"qwen3-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 151669, 40960, 1e6f, 1e-6f, true},
    Dimensions{"qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 151669, 40960, 1e6f, 1e-6f, false},
    Dimensions{"olmo2-1b", "olmo2", 2048, 16, 16, 16, 128, 8192, 100352, 100278, 4096, 5e5f, 1e-6f, false},
    Dimensions{"olmo2-7b", "olmo2", 4096, 32, 32, 32, 128, 11008, 100352, 100278, 4096, 5e5f, 1e-6f, false},
    // Six dense layers as wide as the active experts: 4 of 2880 and 8 of 768.
    Dimensions{"gpt-oss-20b", "llama", 2880, 6, 64, 8, 64, 11520, 201088, 201088, 131072, 1.5e5f, 1e-5f,
               false, 17280, true},
    Dimensions{"qwen3-30b-a3b", "qwen3", 2048, 6, 32, 4, 128, 6144, 151936, 151669, 40960, 1e6f, 1e-6f, false,
               12288, true},
};

/// Every value depends only on tensor, row and column, so rows may be read in any order.
class SyntheticWeights final : public WeightSource {
  public:
    SyntheticWeights(std::string path, std::span<const ModelTensor> tensors) : path_(std::move(path)) {
        std::uint32_t seed = 1;
        for (const ModelTensor& tensor : tensors) {
            std::uint64_t bytes = 2;
            for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
            Entry entry{{tensor.name, "BF16", tensor.shape, bytes}, {seed++, spread(tensor)}};
            entries_.add(tensor.name, std::move(entry));
        }
    }

    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        return entry == nullptr ? nullptr : &entry->info;
    }
    std::vector<std::string> names() const override { return entries_.names(); }

    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        if (entry->values.spread == 0) {
            std::fill(out, out + tensor.cols(), 1.0f);
            return;
        }
        const int cols = static_cast<int>(tensor.cols());
        const std::uint32_t start = entry->values.start_of(static_cast<int>(row));
        for (int i = 0; i < cols; ++i) out[i] = entry->values.at(start, i);
    }
    std::optional<kernels::RandomValues> random_values(const TensorInfo& tensor) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        if (entry->values.spread == 0) return std::nullopt;
        return entry->values;
    }

  private:
    struct Entry {
        TensorInfo info;
        kernels::RandomValues values;  ///< without spread, all are 1
    };

    /// Every matrix has unit gain; norms change nothing.
    static float spread(const ModelTensor& tensor) {
        if (tensor.name.ends_with("norm.weight")) return 0;
        if (tensor.shape.size() == 1) return 0.1f;
        return std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
    }

    std::string path_;
    TensorIndex<Entry> entries_;
};

TokenizerSpec byte_tokenizer(const std::string& spec, int tokens) {
    TokenizerSpec out;
    out.file = spec;
    out.model = "gpt2";
    out.pre = "gpt-2";
    for (int id = 0; id < tokens; ++id) {
        out.tokens.push_back(id < 256 ? encode_byte_level(std::string(1, static_cast<char>(id)))
                                      : fmt::format("[{}]", id));
    }
    out.types.assign(out.tokens.size(), 1);
    return out;
}

/// Parses "synthetic:NAME" or "synthetic:NAME/LAYERS".
struct Spec {
    std::string_view name;
    std::optional<std::string_view> layers;
};
Spec parse_spec(std::string_view spec) {
    Spec out{spec.substr(std::min(scheme.size(), spec.size())), std::nullopt};
    const std::size_t slash = out.name.find('/');
    if (slash == std::string_view::npos) return out;
    out.layers = out.name.substr(slash + 1);
    out.name = out.name.substr(0, slash);
    return out;
}

Result<int> parse_layers(const Dimensions& model, const Spec& spec, std::string_view text) {
    if (!spec.layers) return model.layers;
    const auto layers = parse_number<int>(*spec.layers);
    if (!layers || *layers < 1 || *layers > model.layers)
        return bad_input("{}: '{}' is not a layer count; use {}{}/1 to /{}", printable(std::string(text)),
                         printable(std::string(*spec.layers)), scheme, model.name, model.layers);
    return *layers;
}

ModelConfig make_config(const Dimensions& model, const std::string& spec, int layers) {
    ModelConfig config;
    apply_architecture(*architecture_by_name(model.architecture), config);
    config.name = model.stand_in ? spec + " (stand-in layers)" : spec;
    if (layers < model.layers) config.name += fmt::format(" ({} of {} layers)", layers, model.layers);
    config.layers = layers;
    config.hidden = model.hidden;
    config.heads = model.heads;
    config.kv_heads = model.kv_heads;
    config.head_dim = model.head_dim;
    config.ffn = model.ffn;
    config.vocab = model.vocab;
    config.context = model.context;
    config.rotation.theta = model.rope_theta;
    config.norm_eps = model.norm_eps;
    config.tied_head = model.tied_head;
    return config;
}

}  // namespace

std::unique_ptr<WeightSource> make_synthetic_weights(std::string path, std::span<const ModelTensor> tensors) {
    return std::make_unique<SyntheticWeights>(std::move(path), tensors);
}

int synthetic_drafter_ffn(std::string_view spec) {
    for (const Dimensions& model : known_models) {
        if (parse_spec(spec).name != model.name) continue;
        return model.drafter_ffn > 0 ? model.drafter_ffn : model.ffn;
    }
    return 0;
}

bool is_synthetic_model(std::string_view spec) {
    return spec.starts_with(scheme);
}

namespace {

Result<const Dimensions*> find_dimensions(const std::string& spec) {
    const Spec parts = parse_spec(spec);
    std::string known;
    for (const Dimensions& model : known_models) {
        if (model.name == parts.name) return &model;
        known += (known.empty() ? "" : ", ") + std::string(model.name);
    }
    return bad_input("{}: unknown synthetic target; choose one of {}", printable(spec), known);
}

}  // namespace

Result<SyntheticShape> synthetic_shape(const std::string& spec) {
    DS_ASSIGN(const Dimensions* model, find_dimensions(spec));
    DS_ASSIGN(const int layers, parse_layers(*model, parse_spec(spec), spec));
    return SyntheticShape{make_config(*model, spec, layers).name, model->tokens, model->hidden};
}

Result<ModelFile> make_synthetic_model(const std::string& spec) {
    DS_ASSIGN(const Dimensions* model, find_dimensions(spec));
    ModelFile out;
    DS_ASSIGN(const int layers, parse_layers(*model, parse_spec(spec), spec));
    out.config = make_config(*model, spec, layers);
    out.weights = make_synthetic_weights(spec, model_tensors(out.config));
    DS_ASSIGN(out.tokenizer, Tokenizer::create(byte_tokenizer(spec, model->tokens)));
    out.quantisation = "BF16";
    return out;
}

}  // namespace draftscope
