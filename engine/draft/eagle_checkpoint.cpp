#include "engine/draft/eagle_checkpoint.h"

#include <array>
#include <utility>

#include "engine/draft/drafter_files.h"
#include "engine/draft/synthetic_drafter.h"
#include "engine/weights/weight_packing.h"

namespace draftscope {
namespace {

constexpr std::string_view layer_tensors = "layers.0.";
constexpr std::array<std::string_view, 4> layer_prefixes = {"midlayer.", "layers.0.", "model.layers.0.",
                                                            "transformer."};
constexpr std::array<std::string_view, 2> weight_files = {"model.safetensors", "pytorch_model.bin"};
constexpr std::array<std::string_view, 1> known_options = {"rope"};

/// Official tensor names, outside and inside the layer, with llama.cpp's names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> gguf_names = {{
    {"fc.weight", "fc.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"embed_tokens.weight", "token_embd.weight"},
    {"input_norm.weight", "enc.output_norm.weight"},
    {"d2t", "d2t"},
    {"layers.0.hidden_norm.weight", "blk.0.attn_norm_2.weight"},
    {"layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
    {"layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
    {"layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
    {"layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
    {"layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
    {"layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
    {"layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
    {"layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
    {"layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"},
}};

/// Returns whether a tensor may be ignored: maps that follow from others, rotary angles, copies of the
/// target's tensors.
bool may_ignore(std::string_view name, EagleGeneration generation) {
    if (name.ends_with("rotary_emb.inv_freq") || name.starts_with("verifier_")) return true;
    if (name == "t2d" || name == "d2t") return true;
    return generation == EagleGeneration::eagle2 && name == "lm_head.weight";
}

void find_layer(EagleCheckpoint& checkpoint) {
    for (const std::string_view prefix : layer_prefixes) {
        if (checkpoint.weights->find(std::string(prefix) + "self_attn.q_proj.weight") == nullptr) continue;
        checkpoint.layer_prefix = prefix;
        return;
    }
}

Status check_generation(EagleCheckpoint& checkpoint, EagleGeneration generation) {
    const bool is_eagle3 = checkpoint.has("layers.0.hidden_norm.weight");
    if (is_eagle3 == (generation == EagleGeneration::eagle3)) return {};
    // If the checkpoint is of neither generation, loading reports the missing tensor.
    if (!is_eagle3 && !checkpoint.has("layers.0.self_attn.q_proj.weight")) return {};
    return bad_input("{}: is an {} checkpoint; use --drafter {}:PATH", checkpoint.weights->path(),
                     is_eagle3 ? "EAGLE-3" : "EAGLE-2", is_eagle3 ? "eagle3" : "eagle2");
}

/// Takes the head size from q_proj's rows if config.json omits it: writers omit a value equal to a default.
void infer_head_dim(EagleCheckpoint& checkpoint, const std::optional<JsonFile>& config) {
    if (!config || config->find("head_dim") != nullptr) return;
    LayerShape& shape = checkpoint.shape;
    const TensorInfo* q = checkpoint.weights->find(checkpoint.name("layers.0.self_attn.q_proj.weight"));
    if (q == nullptr || q->rows() % shape.heads != 0 || q->rows() / shape.heads % 2 != 0) return;
    const auto rows = static_cast<int>(q->rows() / shape.heads);
    // The scaled rotation was computed for the previous size.
    if (rows >= 2 && checkpoint.rope_divisors.empty()) shape.head_dim = rows;
}

Status open_files(const std::string& path, EagleGeneration generation, const Target& target,
                  EagleCheckpoint& out) {
    const ModelConfig& config = target.config();
    out.aux_layers = {2, config.layers / 2, config.layers - 3};
    if (is_synthetic_drafter(path)) return make_synthetic_eagle(generation, path, target, out);
    if (path.ends_with(".gguf")) {
        DS_ASSIGN(GgufFile file, GgufFile::open(path));
        return read_eagle_gguf(std::move(file), config, out);
    }
    DS_ASSIGN(DrafterFiles files, open_drafter_files(path, weight_files));
    if (!files.config)
        return bad_input("{}: config.json with the drafter's dimensions is missing in the same folder",
                         files.weights_path);
    DS_TRY(read_eagle_config(*files.config, config, out));
    out.weights = std::move(files.weights);
    find_layer(out);
    infer_head_dim(out, files.config);
    return {};
}

Status make_rope(const DrafterSource& drafter_source, const Target& target, EagleCheckpoint& out) {
    const auto option = drafter_source.options.find("rope");
    const std::string kind = option == drafter_source.options.end() ? "own" : option->second;
    const int context = target.config().context;
    if (kind == "own") {
        out.rope = kernels::make_rope_table(out.shape.head_dim, out.rope_theta, context, out.rope_divisors,
                                            out.rope_scale);
        return {};
    }
    if (kind != "target")
        return bad_input("drafter option rope={} is unknown; use rope=own or rope=target", kind);
    if (target.config().head_dim != out.shape.head_dim) {
        return bad_input(
            "drafter option rope=target: the target's "
            "attention heads are {} wide, the drafter's {}",
            target.config().head_dim, out.shape.head_dim);
    }
    out.rope = target.rope();
    return {};
}

/// The default aux layers require a minimum depth of the target.
Status check_eagle3(const EagleCheckpoint& checkpoint, const ModelConfig& target) {
    for (const int id : checkpoint.aux_layers) {
        if (id >= 0 && id < target.layers) continue;
        return bad_input(
            "{}: EAGLE-3 reads the inputs of layers 2, L/2 and L - 3 of the "
            "target, which has only {} layers; set eagle_aux_hidden_state_layer_ids",
            checkpoint.weights->path(), target.layers);
    }
    return {};
}

Status check_eagle2(const EagleCheckpoint& checkpoint, const ModelConfig& target) {
    if (checkpoint.shape.hidden == target.hidden) return {};
    return bad_input("{}: EAGLE-2 needs the target's hidden size {}, found {}", checkpoint.weights->path(),
                     target.hidden, checkpoint.shape.hidden);
}

}  // namespace

std::string EagleCheckpoint::name(std::string_view official) {
    std::string out(official);
    if (layout == EagleLayout::gguf) {
        for (const auto& [ours, theirs] : gguf_names) {
            if (ours == official) out = theirs;
        }
    } else if (official.starts_with(layer_tensors)) {
        out = layer_prefix + std::string(official.substr(layer_tensors.size()));
    } else if (official.starts_with("fc.") && weights->find("fc.weight") == nullptr &&
               weights->find("fusion_fc.weight") != nullptr) {
        out = "fusion_" + out;
    }
    used.insert(out);
    return out;
}

bool EagleCheckpoint::has(std::string_view official) {
    return weights->find(name(official)) != nullptr;
}

Status EagleCheckpoint::check_all_used() const {
    const EagleGeneration generation = used.count("norm.weight") + used.count("output_norm.weight") > 0
                                           ? EagleGeneration::eagle3
                                           : EagleGeneration::eagle2;
    for (const std::string& tensor : weights->names()) {
        if (used.count(tensor) != 0 || may_ignore(tensor, generation)) continue;
        return bad_input("{}: tensor '{}' is not supported in {} checkpoints by this version",
                         weights->path(), tensor,
                         generation == EagleGeneration::eagle3 ? "EAGLE-3" : "EAGLE-2");
    }
    return {};
}

Result<EagleCheckpoint> open_eagle_checkpoint(EagleGeneration generation, const std::string& text,
                                              const Target& target) {
    DS_ASSIGN(const DrafterSource drafter_source, parse_drafter_source(text, known_options));
    EagleCheckpoint out;
    DS_TRY(open_files(drafter_source.path, generation, target, out));
    DS_TRY(check_generation(out, generation));
    DS_TRY(generation == EagleGeneration::eagle2 ? check_eagle2(out, target.config())
                                                 : check_eagle3(out, target.config()));
    if (out.has("embed_tokens.weight")) {
        DS_ASSIGN(out.embedding, require_tensor(*out.weights, out.name("embed_tokens.weight"),
                                                {target.config().vocab, out.shape.hidden},
                                                "from the target's vocabulary and config.json"));
    } else if (out.shape.hidden != out.target_hidden) {
        return bad_input(
            "{}: the hidden size {} differs from the target's {}, which "
            "requires embeddings in the checkpoint, but tensor '{}' is missing",
            out.weights->path(), out.shape.hidden, out.target_hidden, out.name("embed_tokens.weight"));
    }
    DS_TRY(make_rope(drafter_source, target, out));
    DS_TRY(check_drafter_memory(*out.weights, target.precision()));
    return out;
}

Result<DecoderLayer> load_eagle_layer(kernels::Exec& exec, kernels::Precision precision,
                                      EagleCheckpoint& checkpoint, int qkv_inputs) {
    const LayerShape& shape = checkpoint.shape;
    const WeightSource& source = *checkpoint.weights;
    const std::string reason = "from config.json and the target";
    const auto stack = [&](std::initializer_list<StackedTensor> parts, int cols) {
        std::vector<StackedTensor> named(parts);
        for (StackedTensor& part : named)
            part.name = checkpoint.name("layers.0." + part.name + "_proj.weight");
        return pack_stacked(exec, precision, source, named, cols, reason);
    };
    const auto vector = [&](std::string_view name, int size) {
        return read_vector(source, checkpoint.name(name), size, reason);
    };
    DecoderLayer out;
    DS_ASSIGN(out.qkv, stack({{"self_attn.q", shape.q_width()},
                              {"self_attn.k", shape.kv_width()},
                              {"self_attn.v", shape.kv_width()}},
                             qkv_inputs));
    DS_ASSIGN(out.attn_out, stack({{"self_attn.o", shape.hidden}}, shape.q_width()));
    DS_ASSIGN(out.gate_up, stack({{"mlp.gate", shape.ffn}, {"mlp.up", shape.ffn}}, shape.hidden));
    DS_ASSIGN(out.down, stack({{"mlp.down", shape.hidden}}, shape.ffn));
    DS_ASSIGN(out.ffn_norm, vector("layers.0.post_attention_layernorm.weight", shape.hidden));
    if (checkpoint.layout == EagleLayout::gguf)
        return out;  // the architecture has neither biases nor q/k norms
    if (checkpoint.has("layers.0.self_attn.q_norm.weight")) {
        DS_ASSIGN(out.q_norm, vector("layers.0.self_attn.q_norm.weight", shape.head_dim));
        DS_ASSIGN(out.k_norm, vector("layers.0.self_attn.k_norm.weight", shape.head_dim));
    }
    if (!checkpoint.has("layers.0.self_attn.q_proj.bias")) return out;
    for (const auto& [name, width] : {std::pair("q", shape.q_width()), std::pair("k", shape.kv_width()),
                                      std::pair("v", shape.kv_width())}) {
        DS_ASSIGN(const auto part, vector(fmt::format("layers.0.self_attn.{}_proj.bias", name), width));
        out.qkv_bias.insert(out.qkv_bias.end(), part.begin(), part.end());
    }
    return out;
}

void embed_for_eagle(const EagleCheckpoint& checkpoint, const Target& target, std::span<const TokenId> tokens,
                     Rows<float> out) {
    if (checkpoint.embedding == nullptr) return target.embed(tokens, out);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        checkpoint.weights->read_row(*checkpoint.embedding, tokens[i], out.row_data(static_cast<int>(i)));
    }
}

const float* eagle_device_embeddings(const EagleCheckpoint& checkpoint, const Target& target,
                                     kernels::Backend& backend, DeviceEmbeddings& own) {
    if (checkpoint.embedding == nullptr) return target.device_embeddings();
    return own.get(backend, target.config().vocab, checkpoint.shape.hidden,
                   [&](std::span<const TokenId> tokens, Rows<float> out) {
                       embed_for_eagle(checkpoint, target, tokens, out);
                   });
}

}  // namespace draftscope
