#include "engine/draft/eagle_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/parse.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/head_rows.h"
#include "engine/draft/synthetic_drafter.h"
#include "engine/weights/memory_check.h"
#include "engine/weights/weight_packing.h"

namespace draftscope {
namespace {

constexpr std::string_view layer_tensors = "layers.0.";
constexpr std::array<std::string_view, 2> weight_files = {"model.safetensors", "pytorch_model.bin"};
constexpr std::array<std::string_view, 3> eagle2_options = {"rope", "embeddings", "features"};
constexpr std::array<std::string_view, 7> eagle3_options = {"rope",     "embeddings", "layers", "recycle",
                                                            "residual", "head",       "d2t"};
/// A tensor of every layer.
constexpr std::string_view query = "self_attn.q_proj.weight";

/// Other writers' names: official, theirs.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> other_names = {{
    {"fc.weight", "fusion_fc.weight"},
    {"fc.bias", "fusion_fc.bias"},
    {"d2t", "draft_id_to_target_id"},
}};

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

bool is_part(std::string_view name, std::string_view tensor) {
    return name == tensor || (name.ends_with(tensor) && name[name.size() - tensor.size() - 1] == '.');
}

/// Returns whether a tensor may be ignored: maps of an LM head, rotary angles, copies of the target's
/// tensors.
bool may_ignore(std::string_view name) {
    return name.ends_with("rotary_emb.inv_freq") || name.find("verifier_") != std::string_view::npos ||
           is_part(name, "t2d") || is_part(name, "d2t");
}

/// Finds the only decoder layer, whatever its prefix.
Status find_layer(EagleCheckpoint& checkpoint) {
    std::vector<std::string> found;
    for (const std::string& name : checkpoint.weights->names())
        if (is_part(name, query)) found.push_back(name.substr(0, name.size() - query.size()));
    if (found.size() > 1)
        return bad_input("{}: has {} decoder layers ('{}', '{}'...); EAGLE checkpoints have one",
                         checkpoint.weights->path(), found.size(), found[0], found[1]);
    if (!found.empty()) checkpoint.layer_prefix = found.front();
    return {};
}

Status check_generation(EagleCheckpoint& checkpoint, EagleGeneration generation) {
    const bool is_eagle3 =
        checkpoint.layout == EagleLayout::gguf || checkpoint.has("layers.0.hidden_norm.weight");
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
    if (rows >= 2 && checkpoint.rotation.divisors.empty()) shape.head_dim = rows;
}

Status open_files(const std::string& path, const ModelConfig& target, EagleCheckpoint& out) {
    if (path.ends_with(".gguf")) {
        DS_ASSIGN(GgufFile file, GgufFile::open(path));
        return read_eagle_gguf(std::move(file), target, out);
    }
    DS_ASSIGN(DrafterFiles files, open_drafter_files(path, weight_files, out.notes));
    DS_TRY(check_family(files, {"EAGLE"}));
    if (!files.config)
        return bad_input("{}: config.json with the drafter's dimensions is missing in the same folder",
                         files.weights->path());
    DS_TRY(read_eagle_config(*files.config, target, out));
    out.weights = std::move(files.weights);
    DS_TRY(find_layer(out));
    infer_head_dim(out, files.config);
    return {};
}

Status make_rope(const DrafterSource& drafter_source, const Target& target, EagleCheckpoint& out) {
    constexpr std::array<std::string_view, 2> kinds = {"own", "target"};
    DS_ASSIGN(const std::string kind, drafter_source.choice("rope", kinds));
    const int context = target.config().context;
    if (kind == "own") {
        out.rope = kernels::make_rope_table(out.shape.head_dim, out.rotation.theta, context,
                                            out.rotation.divisors, out.rotation.scale);
        return {};
    }
    if (target.config().head_dim == 0)
        return bad_input(
            "drafter option rope=target: the recording does not have the target's rotation; name the "
            "target's files with --model");
    if (target.config().head_dim != out.shape.head_dim) {
        return bad_input(
            "drafter option rope=target: the target's "
            "attention heads are {} wide, the drafter's {}",
            target.config().head_dim, out.shape.head_dim);
    }
    out.rope = target.rope();
    return {};
}

/// Reads layers=1/12/21.
Status read_layers(const std::string& text, EagleCheckpoint& out) {
    auto layers = parse_numbers(text, '/', 0, static_cast<int>(max_layers));
    if (!layers)
        return bad_input("drafter option layers={}: expected layer numbers as in layers=1/12/21", text);
    out.aux_layers = std::move(*layers);
    out.aux_field = "drafter option layers";
    out.aux_offset = 0;
    return {};
}

/// Chooses EAGLE-3's default if no field names the feature layers, and checks them.
Status check_layers(EagleCheckpoint& out, const ModelConfig& target) {
    const std::string& path = out.weights->path();
    const bool named = !out.aux_field.empty();
    if (target.layers == 0) return {};
    if (!named) {
        out.aux_layers = {2, target.layers / 2, target.layers - 3};
        if (target.layers < 3)
            return bad_input(
                "{}: EAGLE-3 reads the inputs of layers 2, L/2 and L - 3 of the target, which has only {} "
                "layers; set eagle_aux_hidden_state_layer_ids, or give layers=",
                path, target.layers);
        if (!is_synthetic_drafter(path))
            add_note(out.notes,
                     "{}: names no feature layers; EAGLE-3's default is assumed, the inputs of layers {}; "
                     "layers={} names others",
                     path, fmt::join(out.aux_layers, ", "), fmt::join(out.aux_layers, "/"));
    }
    for (const int layer : out.aux_layers)
        if (layer > target.layers)
            return bad_input("{} contains {}, but the target has layers 0..{}", out.aux_field,
                             layer - out.aux_offset, target.layers - out.aux_offset);
    std::vector<int> sorted = out.aux_layers;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
        add_note(out.notes, "{}: the feature layers {} name layer {} more than once",
                 named ? out.aux_field : path, fmt::join(out.aux_layers, ", "), *twice);
    const TensorInfo* fc = out.weights->find(out.name("fc.weight"));
    const std::int64_t width = out.target_hidden;
    if (fc == nullptr || fc->cols() == static_cast<std::int64_t>(out.aux_layers.size()) * width ||
        fc->cols() % width != 0)
        return {};
    return bad_input(
        "{}: tensor '{}' reads {} features of {} values, but {} layers are {}; give layers=", path, fc->name,
        fc->cols() / width, width, out.aux_layers.size(), named ? "named" : "the default");
}

/// Checks that an optional part of the checkpoint may be replaced by the target's, or is there.
Status choose_embeddings(const DrafterSource& drafter_source, const ModelConfig& target,
                         EagleCheckpoint& out) {
    constexpr std::array<std::string_view, 2> kinds = {"own", "target"};
    DS_ASSIGN(const std::string kind, drafter_source.choice("embeddings", kinds));
    const std::string name = out.name("embed_tokens.weight");
    const TensorInfo* tensor = out.weights->find(name);
    if (tensor == nullptr || kind == "target") {
        if (tensor == nullptr && kind == "own" && drafter_source.options.contains("embeddings"))
            return bad_input("{}: embeddings=own: tensor '{}' is missing", out.weights->path(), name);
        if (out.shape.hidden == target.hidden) return {};
        return bad_input(
            "{}: the hidden size {} differs from the target's {}, which requires embeddings in the "
            "checkpoint, but tensor '{}' is {}",
            out.weights->path(), out.shape.hidden, target.hidden, name,
            tensor == nullptr ? "missing" : "not used");
    }
    const std::int64_t difference = tensor->rows() - target.vocab;
    const std::int64_t rows = std::abs(difference) > max_vocab_difference ? target.vocab : tensor->rows();
    DS_ASSIGN(out.embedding, require_tensor(*out.weights, name, {rows, out.shape.hidden},
                                            "from the target's vocabulary and config.json"));
    if (difference < 0)
        add_note(out.notes, "{}: tensor '{}' has {} rows; tokens {} to {} are embedded {}",
                 out.weights->path(), name, rows, rows, target.vocab - 1,
                 out.shape.hidden == target.hidden ? "by the target's rows" : "as zeros");
    return {};
}

Status apply_options(const DrafterSource& drafter_source, EagleCheckpoint& out) {
    const auto& options = drafter_source.options;
    if (const auto layers = options.find("layers"); layers != options.end())
        DS_TRY(read_layers(layers->second, out));
    if (!options.contains("recycle") && !out.norms.note.empty()) out.notes.push_back(out.norms.note);
    constexpr std::array<std::string_view, 2> kinds = {"raw", "normed"};
    for (const auto& [option, flag] :
         {std::pair("recycle", &out.norms.output), {"residual", &out.norms.before_residual}}) {
        DS_ASSIGN(const std::string kind, drafter_source.choice(option, kinds));
        if (options.contains(option)) *flag = kind == "normed";
    }
    return {};
}

Status check_eagle2(const DrafterSource& drafter_source, const ModelConfig& target, EagleCheckpoint& out) {
    constexpr std::array<std::string_view, 2> kinds = {"normed", "raw"};
    DS_ASSIGN(const std::string kind, drafter_source.choice("features", kinds));
    out.aux_layers.clear();
    if (kind == "raw") out.aux_layers = {target.layers};
    if (out.shape.hidden == target.hidden) return {};
    return bad_input("{}: EAGLE-2 needs the target's hidden size {}, found {}", out.weights->path(),
                     target.hidden, out.shape.hidden);
}

}  // namespace

std::span<const std::string_view> eagle_options(EagleGeneration generation) {
    return generation == EagleGeneration::eagle2 ? std::span<const std::string_view>(eagle2_options)
                                                 : std::span<const std::string_view>(eagle3_options);
}

std::string EagleCheckpoint::name(std::string_view official) {
    std::string out(official);
    if (layout == EagleLayout::gguf) {
        for (const auto& [ours, theirs] : gguf_names) {
            if (ours == official) out = theirs;
        }
    } else if (official.starts_with(layer_tensors)) {
        out = layer_prefix + std::string(official.substr(layer_tensors.size()));
    } else {
        out = outer_name(official);
    }
    used.insert(out);
    return out;
}

/// Returns the name of a tensor outside of the layer: as it is, or the only one that ends in it.
std::string EagleCheckpoint::outer_name(std::string_view official) const {
    std::string_view other;
    for (const auto& [ours, theirs] : other_names)
        if (ours == official) other = theirs;
    for (const std::string_view candidate : {official, other}) {
        if (candidate.empty() || weights->find(candidate) != nullptr)
            return std::string(candidate.empty() ? official : candidate);
        std::vector<std::string> found = weights->names();
        std::erase_if(found, [&](const std::string& name) {
            return name.starts_with(layer_prefix) || !is_part(name, candidate);
        });
        if (found.size() == 1) return found.front();
    }
    return std::string(official);
}

bool EagleCheckpoint::has(std::string_view official) {
    return weights->find(name(official)) != nullptr;
}

Status EagleCheckpoint::check_used() const {
    return check_all_used(*weights, used, generation == EagleGeneration::eagle3 ? "EAGLE-3" : "EAGLE-2",
                          may_ignore);
}

namespace {

/// The checks that all sources share.
Status check_options(const DrafterSource& drafter_source, const ModelConfig& target, EagleCheckpoint& out) {
    DS_TRY(check_generation(out, out.generation));
    DS_TRY(apply_options(drafter_source, out));
    DS_TRY(out.generation == EagleGeneration::eagle2 ? check_eagle2(drafter_source, target, out)
                                                     : check_layers(out, target));
    return choose_embeddings(drafter_source, target, out);
}

}  // namespace

Result<EagleCheckpoint> read_eagle_checkpoint(EagleGeneration generation, const std::string& text,
                                              const ModelConfig& target) {
    DS_ASSIGN(const DrafterSource drafter_source, parse_drafter_source(text, eagle_options(generation)));
    EagleCheckpoint out;
    out.generation = generation;
    DS_TRY(open_files(drafter_source.path, target, out));
    DS_TRY(check_options(drafter_source, target, out));
    return out;
}

Result<EagleCheckpoint> open_eagle_checkpoint(EagleGeneration generation, const std::string& text,
                                              const Target& target) {
    DS_ASSIGN(const DrafterSource drafter_source, parse_drafter_source(text, eagle_options(generation)));
    EagleCheckpoint out;
    out.generation = generation;
    if (is_synthetic_drafter(drafter_source.path)) {
        DS_TRY(make_synthetic_eagle(generation, drafter_source.path, target, out));
        DS_TRY(check_options(drafter_source, target.config(), out));
    } else {
        DS_ASSIGN(out, read_eagle_checkpoint(generation, text, target.config()));
    }
    DS_TRY(make_rope(drafter_source, target, out));
    DS_TRY(check_drafter_memory(*out.weights, target.lm_head().precision()));
    return out;
}

Result<DecoderLayer> load_eagle_layer(kernels::Backend& backend, kernels::Precision precision,
                                      EagleCheckpoint& checkpoint, int qkv_inputs) {
    const LayerShape& shape = checkpoint.shape;
    const WeightSource& source = *checkpoint.weights;
    const std::string reason = "from config.json and the target";
    const auto stack = [&](std::initializer_list<StackedTensor> parts, int cols) {
        std::vector<StackedTensor> named(parts);
        for (StackedTensor& part : named)
            part.name = checkpoint.name("layers.0." + part.name + "_proj.weight");
        return pack_stacked(backend, precision, source, named, cols, reason);
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

kernels::EmbeddingTable own_embeddings(const EagleCheckpoint& checkpoint, const Target& target) {
    const int d = checkpoint.shape.hidden;
    return {target.config().vocab, d, [&checkpoint, &target, d](TokenId token, float* out) {
                if (token < checkpoint.embedding->rows())
                    checkpoint.weights->read_row(*checkpoint.embedding, token, out);
                else if (d == target.config().hidden)
                    target.embeddings().read(token, out);
                else
                    std::fill_n(out, d, 0.0f);
            }};
}

}  // namespace draftscope
