#include "engine/formats/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "base/parse.h"
#include "engine/formats/architecture.h"
#include "engine/formats/tensor_file.h"
#include "engine/tokenizer/pretokenizer.h"

namespace draftscope {
namespace {

constexpr std::string_view scheme = "synthetic:";

/// A target of a published size. The config's name is that behind "synthetic:".
struct KnownModel {
    ModelConfig config;
    int tokens;             ///< size of the tokenizer; the other rows of the LM head are padding
    int drafter_ffn = 0;    ///< FFN size of published one-layer drafters; 0 = the target's
    bool stand_in = false;  ///< dense layers replace a mixture of experts
};

/// From the models' published config.json: layers, hidden, heads, KV heads, head size, FFN, vocabulary and
/// context. Llama 3.1's RoPE scaling is omitted: it costs nothing.
const std::vector<KnownModel>& known_models() {
    static const std::vector<KnownModel> models = {
        {{"llama", "llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256, 8192, {5e5f}, 1e-5f}, 128256},
        {{"llama", "llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, {5e5f}, 1e-5f}, 128256},
        {{"llama", "llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, {5e5f}, 1e-5f, true}, 128256},
        {{"qwen2", "qwen2-7b", 28, 3584, 28, 4, 128, 18944, 152064, 32768, {1e6f}, 1e-6f}, 151646},
        {{"qwen3", "qwen3-4b", 36, 2560, 32, 8, 128, 9728, 151936, 40960, {1e6f}, 1e-6f, true}, 151669},
        {{"qwen3", "qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, 40960, {1e6f}, 1e-6f}, 151669},
        {{"olmo2", "olmo2-1b", 16, 2048, 16, 16, 128, 8192, 100352, 4096, {5e5f}, 1e-6f}, 100278},
        {{"olmo2", "olmo2-7b", 32, 4096, 32, 32, 128, 11008, 100352, 4096, {5e5f}, 1e-6f}, 100278},
        // Six dense layers as wide as the active experts: 4 of 2880 and 8 of 768.
        {{"llama", "gpt-oss-20b", 6, 2880, 64, 8, 64, 11520, 201088, 131072, {1.5e5f}, 1e-5f},
         201088,
         17280,
         true},
        {{"qwen3", "qwen3-30b-a3b", 6, 2048, 32, 4, 128, 6144, 151936, 40960, {1e6f}, 1e-6f},
         151669,
         12288,
         true},
    };
    return models;
}

/// Every matrix has unit gain; norms change nothing.
float spread(const ModelTensor& tensor) {
    if (tensor.name.ends_with("norm.weight")) return 0;
    if (tensor.shape.size() == 1) return 0.1f;
    return std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
}

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

Result<int> parse_layers(const KnownModel& model, const Spec& spec, std::string_view text) {
    if (!spec.layers) return model.config.layers;
    const auto layers = parse_number<int>(*spec.layers);
    if (!layers || *layers < 1 || *layers > model.config.layers)
        return bad_input("{}: '{}' is not a layer count; use {}{}/1 to /{}", printable(std::string(text)),
                         printable(std::string(*spec.layers)), scheme, model.config.name,
                         model.config.layers);
    return *layers;
}

ModelConfig make_config(const KnownModel& model, const std::string& spec, int layers) {
    ModelConfig config = model.config;
    apply_architecture(*architecture_by_name(config.architecture), config);
    config.name = model.stand_in ? spec + " (stand-in layers)" : spec;
    if (layers < config.layers) config.name += fmt::format(" ({} of {} layers)", layers, config.layers);
    config.layers = layers;
    return config;
}

/// Finds the model of a spec.
Result<const KnownModel*> find_model(const std::string& spec) {
    const Spec parts = parse_spec(spec);
    std::string known;
    for (const KnownModel& model : known_models()) {
        if (model.config.name == parts.name) return &model;
        known += (known.empty() ? "" : ", ") + model.config.name;
    }
    return bad_input("{}: unknown synthetic target; choose one of {}", printable(spec), known);
}

}  // namespace

std::unique_ptr<WeightSource> make_synthetic_weights(std::string path, std::span<const ModelTensor> tensors) {
    auto out = std::make_unique<TensorFile>(std::move(path));
    const TensorType* const type = find_plain_type("BF16");
    std::uint32_t seed = 1;
    for (const ModelTensor& tensor : tensors) {
        TensorInfo info{tensor.name, "BF16", tensor.shape, *stored_bytes(*type, tensor.shape)};
        out->add({std::move(info), type, nullptr, nullptr, 0, {seed++, spread(tensor)}});
    }
    return out;
}

int synthetic_drafter_ffn(std::string_view spec) {
    for (const KnownModel& model : known_models())
        if (parse_spec(spec).name == model.config.name)
            return model.drafter_ffn > 0 ? model.drafter_ffn : model.config.ffn;
    return 0;
}

bool is_synthetic_model(std::string_view spec) {
    return spec.starts_with(scheme);
}

Result<SyntheticShape> synthetic_shape(const std::string& spec) {
    DS_ASSIGN(const KnownModel* model, find_model(spec));
    DS_ASSIGN(const int layers, parse_layers(*model, parse_spec(spec), spec));
    return SyntheticShape{make_config(*model, spec, layers).name, model->tokens, model->config.hidden};
}

Result<ModelFile> make_synthetic_model(const std::string& spec) {
    DS_ASSIGN(const KnownModel* model, find_model(spec));
    ModelFile out;
    DS_ASSIGN(const int layers, parse_layers(*model, parse_spec(spec), spec));
    out.config = make_config(*model, spec, layers);
    out.weights = make_synthetic_weights(spec, model_tensors(out.config));
    DS_ASSIGN(out.tokenizer, Tokenizer::create(byte_tokenizer(spec, model->tokens)));
    out.quantisation = "BF16";
    return out;
}

}  // namespace draftscope
